"""Every Python block of docs/streams.md, run as written except for the address of the broker; and the file of docs/queues-or-streams.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import page, python_blocks, run_blocks
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from row_reader import rows_waiting

from rabbit_chx import Broker, Publisher, StreamReader, Topology
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

PAGE = "docs/streams.md"


def toml_blocks() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", page("docs/queues-or-streams.md"), re.DOTALL)


@pytest.mark.spark
@pytest.mark.pyspark("4.2", "format('rabbitmq') of a streaming query")
def test_the_blocks_run_and_print_the_output_of_the_page(
    channel: BlockingChannel,
    vhost: RunningBroker,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vhost.stream_url is not None
    assert vhost.ring_via is not None
    channel.exchange_declare("orders", CHX, durable=True)
    for stream in ("orders-0", "orders-1"):
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "orders", "1")
    assert len(python_blocks(PAGE)) == page(PAGE).count("```") / 2

    def check(block: str) -> None:
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"print\(.*\)  # (.*)", block)
        assert not promised or printed == promised
        if ".streams)" in block:
            assert re.fullmatch(r"\{'orders-0': \d+, 'orders-1': \d+\}", printed[0])

    words = {
        "rabbitmq-stream://guest:guest@localhost:5552": vhost.stream_url,
        'amqp://guest:guest@localhost"': f'{vhost.url}"',
        "docker exec rabbitmq": " ".join(vhost.ring_via),
    }
    words |= {f'"{name}"': repr(str(tmp_path / name)) for name in ("checkpoint", "orders.parquet")}
    run_blocks(PAGE, words, {"spark": spark}, after=check)


def test_a_fanout_gives_each_key_a_queue_and_the_stream_of_the_same_number(vhost: RunningBroker) -> None:
    (file,) = toml_blocks()
    keys = [f"customer-{number}" for number in range(1_000)]
    with Broker(vhost.url, vhost.management_url, ring_source=vhost.ring_via) as broker:
        broker.apply(plan(Topology.from_toml(file), broker.topology()))
        rings = [broker.ring(name) for name in ("orders", "orders.log")]
    assert rings[0].indices(keys).tolist() == rings[1].indices(keys).tolist()
    with Publisher(vhost.url, exchange="orders.in") as publisher:
        publisher.publish_many(keys, keys)
    for number in range(4):
        expected = [key for key, place in zip(keys, rings[1].indices(keys), strict=True) if place == number]
        with StreamReader(vhost.stream_url or "", f"orders.log.{number + 1}") as reader:
            found = [str(key, "utf-8") for batch in reader for key in batch["key"].to_pylist() if key]
        assert found == expected
        assert rows_waiting(vhost.url, [f"orders.{number + 1}"]) == len(expected)
