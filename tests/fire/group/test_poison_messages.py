"""A message that ends each member that handles it, in a queue with a delivery limit."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from delivery_checker import Attempt, History, Judge
from poisoned_member import run_member

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9"), pytest.mark.timeout(300)]

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
