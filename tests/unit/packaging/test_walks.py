"""How often a value changes file on its way through the code, as docs/architecture.md tells it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from amqp_broker import ack
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType
from scripted_peer import Peer
from stream_logs import chunks_of
from stream_node import ListeningNode

from rabbit_chx import ConsistentHashExchange, HashRing, Publisher, Topology
from rabbit_chx.routing.jump import opened
from rabbit_chx.topology import plan
from spark_connector.datasource import RabbitMQDataSource

ROOT = Path(__file__).resolve().parents[3]
RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
EXCHANGE = ConsistentHashExchange("x", RING)
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def files_of(work: Callable[[], object], *, once: bool = False) -> list[str]:
    """The files whose functions ran, in order, one after the other never the same; of each function, `once`, the first call."""
    files: list[str] = []
    seen = set()
    rooms = (ROOT / "rabbit_chx", ROOT / "spark_connector")

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event != "call" or "<" in frame.f_code.co_name or not any(map(path.is_relative_to, rooms)):
            return
        if once and frame.f_code in seen:
            return
        seen.add(frame.f_code)
        name = str(path.relative_to(ROOT))
        if files[-1:] != [name]:
            files.append(name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files


def told(heading: str) -> list[str]:
    """The files that the page links in one of its walks, in its order."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [f"rabbit_chx/{file}" for file in re.findall(r"\(\.\./rabbit_chx/([\w/]+\.py)\)", section)]


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Peer(ack) as peer, Publisher(peer.settings, "x") as publisher:
        publisher.publish_many(["warm"], [b"w"])
        yield publisher


def test_a_key_changes_file_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(opened, RING.bucket_count, raising=False)  # other tests may have filled the table
    files = files_of(lambda: RING.destination_for("a key that no other test asks for"))
    assert len(files) - 1 <= 3
    assert list(dict.fromkeys(files)) == told("Route a key")[:3]


def test_a_routed_key_changes_file_ten_times_at_most() -> None:
    EXCHANGE.route("warm")
    assert len(files_of(lambda: EXCHANGE.route("user-42"))) - 1 <= 10


def test_a_published_row_changes_file_23_times_at_most(publisher: Publisher) -> None:
    """The shortest of a hundred: two polls where the ack is not there at once. The guard against other threads is one of the changes."""
    walks = [files_of(lambda: publisher.publish_many(["k"], [b"b"])) for _ in range(100)]
    files = min(walks, key=len)
    assert len(files) - 1 <= 23
    assert set(told("Publish a row")) <= set(files)


def test_a_spark_row_changes_file_92_times_at_most() -> None:
    """Without the look at the exchange before the write. Of each function the first call counts; the shortest of fifty. One that waits for its ack has two more than one whose ack is there."""
    schema = StructType().add("key", StringType()).add("value", BinaryType())
    columns: dict[str, Any] = {"key": ["a", "b"], "value": [b"1", b"2"]}
    batch = pa.record_batch(columns)

    def write() -> None:
        source = RabbitMQDataSource({"url": url, "exchange": "x", "preflight": "false"})
        writer: Any = source.writer(schema, False)  # Spark's type is that of a writer of rows
        writer.commit([writer.write(iter([batch]))])

    with Peer(ack) as peer:
        url = f"amqp://guest:guest@{peer.settings.host}:{peer.settings.port}"
        write()  # what is loaded late is loaded now
        files = min((files_of(write, once=True) for _ in range(50)), key=len)
    assert len(files) - 1 <= 92
    assert len(set(files)) <= 30


def test_a_stream_row_to_spark_changes_file_84_times_at_most() -> None:
    """The driver's part and a task's, each with a connection. Of each function the first call counts."""
    types = {"key": BinaryType(), "value": BinaryType(), "stream": StringType(), "offset": LongType()}
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    schema = schema.add("timestamp", TimestampType())

    def read() -> None:
        url = f"rabbitmq-stream://{node.settings.host}:{node.settings.port}"
        source = RabbitMQDataSource({"url": url, "stream": "s"})
        assert source.schema()
        reader: Any = source.reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert sum(batch.num_rows for batch in batches) == 20

    with ListeningNode(chunks_of(2)) as node:
        read()
        files = min((files_of(read, once=True) for _ in range(5)), key=len)
    assert len(files) - 1 <= 84  # three for the check of the process that reads


def test_a_plan_of_one_added_queue_changes_file_221_times_at_most() -> None:
    """Every call counts, and most come back from the objects, bindings and refusals of the one ring."""
    text = '[[exchanges]]\nname = "o"\ntype = "x-consistent-hash"\nring = [{{ queue = "o.{{1..{0}}}" }}]\n[[queues]]\nname = "o.{{1..{0}}}"\n'
    live, wanted = (Topology.from_toml(text.format(count)) for count in (3, 4))
    plan(wanted, live)  # what is loaded late is loaded now
    files = files_of(lambda: plan(wanted, live))
    assert len(files) - 1 <= 221
    assert len(set(files)) <= 25


def test_every_path_on_the_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(\.\./([^)#]+)\)", PAGE)
    assert len(links) > 50
    assert [link for link in links if not (ROOT / link).exists()] == []
