"""Rings that are found without rabbitmqctl: from the queues that received real keys."""

from __future__ import annotations

import asyncio
import csv
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exchange_types import CHX, FANOUT
from group_stage import QUICK, eventually
from pika import BasicProperties
from pyarrow import parquet
from shop import Shop

from rabbit_chx import Broker, ConsumerGroup, HashRing
from rabbit_chx.cli import main
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.errors import InputError

pytestmark = pytest.mark.broker

WEIGHTS = {"o.c": 3, "o.a": 1, "o.d": 6, "o.b": 2}
QUORUM = {"x-queue-type": "quorum", "x-single-active-consumer": True}


@pytest.fixture
def bound(shop: Shop) -> Shop:
    """A vhost with the exchange `o`, whose queues were bound by hand; one of them was unbound."""
    shop.channel.exchange_declare("o", CHX, durable=True)
    for queue in (*list(WEIGHTS)[:2], "gone", *list(WEIGHTS)[2:]):
        shop.channel.queue_declare(queue, durable=True, arguments=QUORUM)
        shop.channel.queue_bind(queue, "o", str(WEIGHTS.get(queue, 4)))
    shop.channel.queue_unbind("gone", "o", "4")
    shop.channel.confirm_delivery()
    return shop


def publish(shop: Shop, keys: Iterable[str], header: str | None = None) -> None:
    for key in keys:
        properties = None if header is None else BasicProperties(headers={header: key})
        shop.channel.basic_publish(
            "o", key if header is None else "", key.encode(), properties, mandatory=True
        )


def received(shop: Shop, count: int) -> list[tuple[str, str]]:
    """Return the body and the queue of each message, of so many; the queues are then empty."""
    pairs: list[tuple[str, str]] = []
    tags = [
        shop.channel.basic_consume(
            queue,
            lambda _, __, ___, body, queue=queue: pairs.append((body.decode(), queue)),  # type: ignore[misc]
            auto_ack=True,
        )
        for queue in WEIGHTS
    ]
    deadline = time.monotonic() + 30
    while len(pairs) < count and time.monotonic() < deadline:
        shop.channel.connection.process_data_events(1)
    assert len(pairs) == count
    for tag in tags:
        shop.channel.basic_cancel(tag)
    return pairs


def write(path: Path, pairs: Iterable[tuple[str, ...]], header: tuple[str, ...] = ("key", "queue")) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *pairs])
    return str(path)


def test_the_ring_of_the_broker_follows_from_its_messages(bound: Shop) -> None:
    publish(bound, (f"key-{number}" for number in range(150)))
    pairs = received(bound, 150)
    with Broker(bound.broker.url, ring_source=bound.ring_via) as live:
        read = live.ring("o")
        observed = HashRing.from_observations(sorted(WEIGHTS.items()), pairs, live.release)
    assert observed == read
    assert (observed.provenance, observed.destinations) == ("observed", tuple(WEIGHTS))


def test_a_check_with_observed_keys(
    bound: Shop, answer: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(bound, (f"key-{number}" for number in range(150)))
    pairs = received(bound, 150)
    file = write(tmp_path / "seen.csv", pairs)
    document = answer("ring", "check", "o", *bound.live, "--observed", file)
    assert document["findings"] == []
    (ring,) = document["rings"]
    assert (ring["provenance"], ring["buckets"], ring["observed_keys"]) == ("observed", 12, 150)
    document = answer("ring", "check", "o", *bound.live, *bound.via, "--observed", file)
    assert (document["findings"], document["rings"][0]["provenance"]) == ([], "read")

    key, queue = pairs[0]
    other = next(name for name in WEIGHTS if name != queue)
    table = {
        "routing_key": [key for key, _ in pairs],
        "destination": [other, *(queue for _, queue in pairs[1:])],
        "time": ["2036-11-26T03:02:00Z"] * len(pairs),  # after the start of the broker
    }
    parquet.write_table(pa.table(table), tmp_path / "seen.parquet")
    wrong = ("--observed", str(tmp_path / "seen.parquet"))
    columns = ("--column", "key=routing_key", "--column", "queue=destination")
    document = answer("ring", "check", "o", *bound.live, *bound.via, *wrong, *columns, code=1)
    (finding,) = document["findings"]
    assert (finding["kind"], finding["exchange"]) == ("contradicted", "o")
    assert finding["message"].startswith(
        f"the key '{key}' reached {other} (2036-11-26T03:02:00Z), and the ring sends it to {queue}; 1 of 150 observed keys contradict the ring, "
        "read from a broker: "
    )
    (ring,) = document["rings"]
    assert (ring["provenance"], ring["doubt"]) == ("assumed", finding["message"])

    assert main(["ring", "check", "o", *bound.live, *bound.via, *wrong, *columns]) == 1
    assert "not determined: o" in capsys.readouterr().out
    code = main(["ring", "check", "o", *bound.live, *bound.via, *wrong, *columns, "-o", "prometheus"])
    assert (code, 'exchange="o",kind="contradicted"} 1' in capsys.readouterr().out) == (1, True)
    document = answer("ring", "check", "o", *bound.live, *wrong, *columns, code=1)
    (finding,), (ring,) = document["findings"], document["rings"]
    assert (finding["kind"], ring["provenance"], ring["doubt"]) == (
        "contradicted",
        "assumed",
        finding["message"],
    )
    assert re.match(r"bucket \d+ of 12 is contradicted: the key ", finding["message"])


def test_observed_keys_become_the_record(
    bound: Shop, answer: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards the ring is exact without rabbitmqctl and without the file; a record that real keys contradict is found, and replaced."""
    live, via = bound.live, bound.via
    keys = [f"key-{number}" for number in range(150)]
    publish(bound, keys)
    pairs = received(bound, 150)
    file = write(tmp_path / "seen.csv", pairs)
    (recorded,) = answer("ring", "record", "o", *live, "--observed", file)["recorded"]
    assert (recorded["exchange"], recorded["origin"], recorded["is_new"]) == ("o", "observed", True)
    shown = answer("ring", "show", "o", *live)
    assert shown["provenance"] == "recorded"
    assert shown["buckets"] == answer("ring", "show", "o", *live, *via)["buckets"]
    assert answer("ring", "check", "o", *live, "--observed", file)["findings"] == []
    assert not answer("ring", "record", "o", *live, "--observed", file)["recorded"][0]["is_new"]

    # What the management API does not show: somebody unbinds a member and binds it again.
    bound.channel.queue_unbind("o.c", "o", "3")
    bound.channel.queue_bind("o.c", "o", "3")
    publish(bound, keys)
    later = write(tmp_path / "later.csv", received(bound, 150))
    document = answer("ring", "check", "o", *live, "--observed", later, code=1)
    assert [finding["kind"] for finding in document["findings"]] == ["contradicted"]
    assert "contradict the ring, recorded" in document["findings"][0]["message"]
    assert document["findings"][0]["fix"].startswith(
        "if the ring changed after these messages were published"
    )
    assert main(["ring", "record", "o", *live, "--observed", later]) == 4
    assert "has another order than the ring" in capsys.readouterr().err
    answer("ring", "record", "o", *live, "--observed", later, "--yes")
    assert answer("ring", "check", "o", *live, "--observed", later)["findings"] == []
    assert (
        answer("ring", "show", "o", *live)["buckets"] == answer("ring", "show", "o", *live, *via)["buckets"]
    )

    assert main(["ring", "record", "--all", *live, "--observed", later]) == 2
    assert "--observed has the keys of one exchange" in capsys.readouterr().err


def test_too_few_keys_are_counted(bound: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(bound, ["key-1", "key-2"])
    file = write(tmp_path / "seen.csv", received(bound, 2))
    assert main(["ring", "check", "o", *bound.live, "--observed", file]) == 3
    said = capsys.readouterr().err
    assert "10 of 12 buckets were not seen (" in said
    assert "pass about 30 (N ln N)" in said


def test_keys_that_cannot_be_compared_are_no_sound_ring(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("o", CHX, durable=True)
    shop.channel.exchange_declare("behind", FANOUT, durable=True)
    shop.channel.queue_declare("q", durable=True)
    shop.channel.queue_bind("q", "behind")
    shop.channel.exchange_bind("behind", "o", "1")
    file = write(tmp_path / "seen.csv", [("key-1", "other")])
    assert main(["ring", "check", "o", *shop.live, *shop.via, "--observed", file]) == 3
    assert "no observed key of the exchange 'o' was compared" in capsys.readouterr().err


@pytest.mark.parametrize("header", [None, "tenant"])
def test_a_group_writes_what_it_handles(
    bound: Shop,
    answer: Callable[..., Any],
    tmp_path: Path,
    header: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The ring of its file is that of the broker, and a wrong ring is contradicted."""
    if header is not None:
        bound.channel.exchange_delete("o")
        bound.channel.exchange_declare("o", CHX, durable=True, arguments={"hash-header": header})
        for queue, weight in WEIGHTS.items():
            bound.channel.queue_bind(queue, "o", str(weight))
    path = tmp_path / "seen.csv"
    with Broker(bound.broker.url, ring_source=bound.ring_via) as live:
        ring = live.ring("o")
    handled: list[str] = []

    async def handle(message: GroupMessage) -> None:
        handled.append(message.body.decode())

    async def story(queues: HashRing, count: int) -> str:
        group = ConsumerGroup(
            bound.broker.url,
            queues,
            member="a",
            timing=QUICK,
            journal=None,
            static=(0, 1),
            observe=(path, header),
        )
        async with group:
            running = asyncio.create_task(group.run(handle))
            await eventually(lambda: len(handled) == count, "all is handled")
            group.stop()
            await running
        return str(group.contradiction)

    publish(bound, (f"key-{number}" for number in range(150)), header=header)
    bound.channel.basic_publish("", "o.a", b"straight")
    assert asyncio.run(story(ring, 151)) == "None"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    assert {row["exchange"] for row in rows} == {"o"}
    document = answer("ring", "check", "o", *bound.live, "--observed", str(path))
    assert (document["findings"], document["rings"][0]["provenance"]) == ([], "observed")

    path.write_bytes(path.read_bytes() + b"cut o")  # as by a full disk
    publish(bound, (f"key-{number}" for number in range(140, 160)), header=header)
    wrong = HashRing.from_bindings(sorted(WEIGHTS.items()), ring.release)
    assert "and the ring sends it to" in asyncio.run(story(wrong, 171))
    assert "a message of the exchange 'o' contradicts the ring" in caplog.text
    with path.open(newline="") as file:
        assert sorted(row["key"] for row in csv.DictReader(file)) == sorted(f"key-{n}" for n in range(160))


def test_a_file_of_another_kind_is_not_overwritten(bound: Shop, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    async def enter() -> None:
        async with ConsumerGroup(bound.broker.url, ["o.a"], journal=None, observe=path):
            pass

    with pytest.raises(InputError, match="a file that no group wrote"):
        asyncio.run(enter())
    assert path.read_text() == "mine"
