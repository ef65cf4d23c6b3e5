"""Rejected and expired messages vanish exactly in the queues that a check finds."""

from __future__ import annotations

import time

import pytest
from bounded import until
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from rabbit_chx import Broker, Topology
from rabbit_chx.checking.check_rings import DeadLetters
from rabbit_chx.topology import check, plan

pytestmark = pytest.mark.broker

MESSAGES = 40
#: The arguments of the queue `N.work`, which a ring binds, and the objects that they name; N is the number of the case.
CASES = {
    "a typo": ('x-dead-letter-exchange = "N.dlxx"', ""),
    "nothing bound": ('x-dead-letter-exchange = "N.fan"', ""),
    "a fanout exchange": ('x-dead-letter-exchange = "N.fan"', "N.fan #"),
    "the key": ('x-dead-letter-exchange = "N.key", x-dead-letter-routing-key = "dead"', "N.key dead"),
    "a queue": ('x-dead-letter-exchange = "", x-dead-letter-routing-key = "N.dead"', ""),
    "a retry": ('x-dead-letter-exchange = "", x-dead-letter-routing-key = "N.late"', "late"),
}


def count(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count or 0


def reject(channel: BlockingChannel, queue: str, messages: int) -> None:
    for _ in range(messages):
        (method, *_) = channel.basic_get(queue)
        assert method is not None
        channel.basic_reject(method.delivery_tag or 0, requeue=False)


def objects_of(arguments: str, bound: str, number: int, type_: str) -> str:
    lines = [
        '[[exchanges]]\nname = "N.ring"\ntype = "x-consistent-hash"\nring = [{ queue = "N.work" }]',
        f'[[queues]]\nname = "N.work"\ntype = "{type_}"\narguments = {{ {arguments} }}',
        '[[queues]]\nname = "N.dead"',
    ]
    for name, kind in (("N.fan", "fanout"), ("N.key", "direct")):
        lines.append(f'[[exchanges]]\nname = "{name}"\ntype = "{kind}"')
    if bound == "late":
        late = 'x-dead-letter-exchange = "", x-dead-letter-routing-key = "N.work", x-message-ttl = 50'
        lines.append(f'[[queues]]\nname = "N.late"\narguments = {{ {late} }}')
    elif bound:
        source, key = bound.split()
        lines.append(f'[[bindings]]\nsource = "{source}"\nqueue = "N.dead"\nrouting_key = "{key}"')
    return "\n".join(lines).replace("N.", f"{number}.")


@pytest.mark.parametrize("type_", ["classic", "quorum"])
@pytest.mark.chx_broker(">=4.0", "a TTL of quorum queues, and the strategy of dead letters")
def test_messages_vanish_exactly_where_they_are_found_to(
    managed: Broker, bare_channel: BlockingChannel, type_: str
) -> None:
    numbers = {name: number for number, name in enumerate(CASES)}
    wanted = Topology.from_toml("\n".join(objects_of(*CASES[name], numbers[name], type_) for name in CASES))
    managed.apply(plan(wanted, managed.topology()))
    found = {
        one.destination for one in check(managed.topology(), wanted).findings if one.kind == "dead-letter"
    }
    of_file = DeadLetters.of_file(wanted).findings_of_file()
    assert {one.destination for one in of_file if one.kind == "dead-letter"} == found

    bare_channel.confirm_delivery()
    for name, number in numbers.items():
        for key in range(MESSAGES):
            bare_channel.basic_publish(
                f"{number}.ring", f"k{key}", name.encode(), BasicProperties(delivery_mode=2)
            )
    for number in numbers.values():
        reject(bare_channel, f"{number}.work", MESSAGES)

    def left() -> dict[str, int]:
        return {
            name: sum(
                count(bare_channel, queue.name)
                for queue in wanted.queues
                if queue.name.startswith(f"{number}.")
            )
            for name, number in numbers.items()
        }

    is_lost = {name: f"{number}.work" in found for name, number in numbers.items()}
    expected = {name: 0 if lost else MESSAGES for name, lost in is_lost.items()}
    # And they stay; those of a retry are in no queue while they pass from one to the other.
    for _ in range(2):
        until(lambda: left() == expected, "rejected messages vanish or come back", every_s=0.5)
        time.sleep(1)
    assert [name for name, lost in is_lost.items() if not lost] == [
        "a fanout exchange", "the key", "a queue", "a retry",
    ]  # fmt: skip
