"""Which queue ends each connection that consumes it, and is left out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from rabbit_chx.consuming.group import UndeliverableQueues
from rabbit_chx.errors import BrokerRefusedError, ConnectionLostError, RabbitChxError

INTERNAL = BrokerRefusedError("INTERNAL_ERROR", reply_code=541)
CUT = ConnectionLostError("the connection was lost")


@dataclass
class Ended:
    """A session that has ended."""

    settle_s: float
    consumed: list[str] = field(default_factory=list)
    has_settled: bool = False


def all_at_once(*queues: str) -> Ended:
    return Ended(0.0, list(queues), has_settled=True)


def test_after_an_internal_error_the_queues_are_consumed_one_after_the_other() -> None:
    found = UndeliverableQueues()
    assert found.settle_s == 0.0
    assert found.on_session_ended(INTERNAL, all_at_once("a", "b")) is None
    assert found.settle_s > 0.0
    assert not found.left_out


@pytest.mark.parametrize("cause", [CUT, BrokerRefusedError("CONNECTION_FORCED", reply_code=320)])
def test_another_error_says_nothing_about_queues(cause: RabbitChxError) -> None:
    found = UndeliverableQueues()
    found.on_session_ended(INTERNAL, all_at_once("a", "b"))
    assert found.on_session_ended(cause, Ended(found.settle_s, ["a"])) is None
    assert (found.settle_s, found.first, found.left_out) == (0.0, None, set())


def test_a_queue_that_ends_the_connection_alone_is_left_out() -> None:
    found = UndeliverableQueues()
    found.on_session_ended(INTERNAL, all_at_once("a", "b"))
    assert found.on_session_ended(INTERNAL, Ended(found.settle_s, ["a"])) == "a"
    assert found.left_out == {"a"}


def test_of_several_queues_the_last_one_is_tried_alone_and_none_is_left_out() -> None:
    found = UndeliverableQueues()
    found.on_session_ended(INTERNAL, all_at_once("a", "b", "c"))
    before_s = found.settle_s
    assert found.on_session_ended(INTERNAL, Ended(before_s, ["a", "b"])) is None
    assert (found.first, found.left_out) == ("b", set())
    assert found.settle_s > before_s, "it may have needed longer to show itself"


def test_a_session_that_has_settled_starts_the_search_anew() -> None:
    """The message came later, behind others of its queue."""
    found = UndeliverableQueues()
    found.on_session_ended(INTERNAL, all_at_once("a", "b"))
    assert found.on_session_ended(INTERNAL, Ended(found.settle_s, ["a", "b"], has_settled=True)) is None
    assert found.first is None
    assert not found.left_out


@pytest.mark.parametrize("seed", range(30))
def test_each_queue_with_such_a_message_is_found_and_no_other_one(seed: int) -> None:
    """Also where a message arrives only when the next queues are consumed, as after another member had the queue."""
    chosen = random.Random(seed)  # noqa: S311
    queues = [f"q.{number}" for number in range(chosen.randint(1, 12))]
    poisoned = set(chosen.sample(queues, chosen.randint(1, len(queues))))
    found = UndeliverableQueues()
    for _ in range(20 * len(queues)):
        present = sorted(
            (queue for queue in queues if queue not in found.left_out), key=lambda q: q != found.first
        )
        late = [chosen.randrange(3) if chosen.random() < 0.3 else 0 for _ in present]
        ends = [at + late[at] for at, queue in enumerate(present) if queue in poisoned]
        if not ends:
            break
        at = min(ends)
        is_search = found.settle_s > 0.0
        ended = Ended(
            found.settle_s, present[: at + 1] if is_search else present, not is_search or at >= len(present)
        )
        left_out = found.on_session_ended(INTERNAL, ended)
        assert left_out is None or left_out in poisoned
    assert found.left_out == poisoned
