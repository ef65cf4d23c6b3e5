"""How long an outage is worth going on, decided without a clock, and what its end says. `outages.txt` has most of it.

python tests/unit/publishing/test_limits_outage.py    # writes what this version does into the file
"""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

from delivery_stories import DeliveryStory
from scripted_delivery import Broker, ScriptedConnection, ack, lost
from stories import each_story, played, write_stories

from rabbit_chx.publishing.delivery import Open, Step

STORIES = Path(__file__).with_name("outages.txt")


@each_story(STORIES)
def test_how_an_outage_ends(how: str, lines: list[str]) -> None:
    assert played(DeliveryStory(how).play, lines) == lines


def test_a_publisher_at_rest_may_lose_its_connection_as_often_as_it_likes() -> None:
    """Nothing is open, and nothing is confirmed in between: the broker blocks all the time."""

    def block_and_end(connection: ScriptedConnection) -> None:
        broker.now += 6
        lost()(connection)

    broker = Broker(chain([block_and_end] * 5, repeat(ack())), reconnect_timeout_s=10)
    connect = broker.do

    def do(step: Step) -> ScriptedConnection | None:
        connection = connect(step)
        if isinstance(step, Open) and connection is not None and len(broker.connections) < 6:
            connection.session.blocked = "an alarm"
        return connection

    broker.do = do  # type: ignore[method-assign]
    assert broker.publish("a").confirmed == 1
    assert broker.now > 30
    assert len(broker.connections) == 6


if __name__ == "__main__":
    write_stories(STORIES, lambda how: DeliveryStory(how).play)
