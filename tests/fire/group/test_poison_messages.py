"""Messages that end each member that handles them, in queues with a delivery limit."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from delivery_checker import Attempt, History, Judge
from poisoned_member import read_handled, run_member, run_members

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

LIMIT, POISON, MESSAGES = 3, 150, 300
_FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": LIMIT}


@pytest.mark.parametrize("ending", ["dies", "raises"])
def test_a_poison_message_is_dropped_after_its_returns(
    vhost: RunningBroker, tmp_path: Path, ending: str, record: Judge
) -> None:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=_FIT)
        channel.confirm_delivery()
        for number in range(MESSAGES):
            channel.basic_publish("", "q", str(number).encode())
    path = tmp_path / "handled"
    codes: list[int | None] = []
    while not codes or (codes[-1] and len(codes) <= LIMIT + 1):
        codes.append(run_member(vhost.url, POISON, MESSAGES - 1, path, dies=ending == "dies"))
    lines = path.read_text(encoding="utf-8").split()
    assert lines.count("poison") == LIMIT + 1
    assert codes == [-9 if ending == "dies" else 1] * (LIMIT + 1) + [0], "the last member goes on to the end"
    record(
        History(
            [Attempt(number, "q") for number in range(MESSAGES)],
            MESSAGES,
            {"q": [int(line) for line in lines if line != "poison"]},
            ordered=True,
            elsewhere=[POISON],
        ),
        path="ConsumerGroup",
        fault=f"a message at which each member {'is killed' if ending == 'dies' else 'fails'}, delivery limit {LIMIT}",
        promise=f"The broker drops that message after its return {LIMIT + 1}. Every other message is handled, in order.",
    )


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(
    ("limit", "poisons"),
    [
        (3, {0}),
        pytest.param(20, {1}, marks=pytest.mark.representative),
        (20, {0, 5}),
    ],
    ids=["limit 3", "limit 20", "limit 20, two poison messages"],
)
def test_a_poison_message_costs_no_message_of_another_queue(
    *, vhost: RunningBroker, tmp_path: Path, limit: int, poisons: set[int], members: int, record: Judge
) -> None:
    """The limit of 20 is the default of 4.0 and newer."""
    queues = ["q.0", "q.1", "q.2"]
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in queues:
            is_default = limit == 20 and int(vhost.version.split(".")[0]) >= 4
            more = {} if is_default else {"x-delivery-limit": limit}
            arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True, **more}
            channel.queue_declare(queue, durable=True, arguments=arguments)
        for number in range(90):
            channel.basic_publish("", queues[number % 3], str(number).encode())
    path = tmp_path / "handled"
    deaths = run_members(vhost.url, queues, poisons, 89, path, count=members)
    handled = read_handled(path)
    assert deaths >= limit + 1
    found = {queue: [number for number, at in handled if at == queue] for queue in queues}
    what = f"{len(poisons)} message{'s' * (len(poisons) > 1)} of three queues at which each member is killed"
    record(
        History(
            [Attempt(number, queues[number % 3]) for number in range(90)],
            90,
            found,
            ordered=True,
            elsewhere=sorted(poisons),
        ),
        path="ConsumerGroup",
        fault=f"{what}, delivery limit {limit}, members: {members}",
        promise=f"The broker drops it after its return {limit + 1}. Every other message of each queue is handled, in order.",
    )
