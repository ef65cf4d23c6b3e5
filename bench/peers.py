"""Compare the publishers with other clients in one run: confirmed rows per second, and CPU of the client and of the broker.

All clients publish rows of 100 bytes to one broker in turns. Each run has a separate process. AMQP clients publish persistent, mandatory
messages through an x-consistent-hash exchange to four classic queues, stream clients publish into one stream. Each client uses the
fastest mode that its documentation describes. A run counts only if every row is confirmed and stored once.

Missing clients are installed first: in .cache/peers, and by root with apt-get. A client that cannot be installed is listed with the reason.

    python bench/peers.py [--quick] [--rounds 3] [--results docs/figures/peers.json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pika
from peer_clients import (
    BATCH,
    CLIENTS,
    IN_C,
    IN_JAVA,
    IN_JS,
    MissingClient,
    aio_pika_messages,
    our_stream,
    program,
    rbfly_rows,
    rstream_rows,
)
from pika.adapters.blocking_connection import BlockingChannel
from publish import CHX, EXCHANGE, QUEUES, WINDOW, Cost, Work, ours, windowed_pika
from slot_hop import cpu_s
from stream_forms import clear

from rabbit_chx import StreamReader
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, docker_broker

STREAM = "s"  # that `clear` creates
BODY_BYTES = 100
QUEUED, STREAMED, SUB_ENTRIES = "queues", "stream", "sub-entries"
ONCE, AGAIN, RECONNECT = "each row once", "sending again", "reconnecting"
RAW, DROPS = f"{AGAIN}; AMQP 1.0 format", f"{AGAIN}; storing all, with a `publisherRef`"


class WrongCountError(Exception):
    """The rows that are stored are not those that were published."""


@dataclass(frozen=True, slots=True)
class Way:
    """One mode of one client.

    Attributes:
        client: the client.
        mode: how it publishes.
        into: `QUEUED`, `STREAMED` or `SUB_ENTRIES`.
        rows: the rows of a run.
        publish: publishes them.
        lacks: what the client does not guarantee after an error.
    """

    client: str
    mode: str
    into: str
    rows: int
    publish: Callable[[Work], Cost]
    lacks: str


_JS_CLIENT = "rabbitmq-stream-js-client"
WAYS = [
    Way("rabbit_chx", "`Publisher`", QUEUED, 60_000, ours, ONCE),
    # amqp.h has amqp_confirm_select; it has no function that matches confirms or reconnects.
    Way("rabbitmq-c", "window", QUEUED, 60_000, partial(program, IN_C, (WINDOW,)), RECONNECT),
    # The client's guide, "Effects on Publishing": what is published while the connection is down is lost.
    Way("Java client", "window", QUEUED, 60_000, partial(program, IN_JAVA, (WINDOW,)), AGAIN),
    # pika's README, "Connection recovery": the application has to reconnect.
    Way("pika", "`SelectConnection`", QUEUED, 30_000, windowed_pika, RECONNECT),
    # Channel.basic_publish of aiormq fails when the channel closes; RobustExchange.restore declares and binds.
    Way("aio-pika", "`gather`", QUEUED, 10_000, aio_pika_messages, AGAIN),
    Way("rabbit_chx", "`StreamPublisher`", STREAMED, 600_000, our_stream, "each row once without ids"),
    # Producer._fail_pending_confirmations calls back with is_confirmed=False.
    Way("rstream", "`send_batch`", STREAMED, 60_000, partial(rstream_rows, encoded=True), AGAIN),
    # RawMessage stores bytes as they are: a client that expects AMQP 1.0 cannot read them.
    Way("rstream", "`send_batch`, bytes", STREAMED, 200_000, rstream_rows, RAW),
    # RabbitMQStreamsProtocol.process_publish_error only logs, and `publish` waits without a bound.
    Way("rbfly", "`PublisherBatchFast`", STREAMED, 200_000, rbfly_rows, "an error for a refused row"),
    # Client.restart only declares; Connection.send drops what is sent while the socket is not open.
    Way(_JS_CLIENT, "`send`", STREAMED, 120_000, partial(program, IN_JS, (0, "None")), AGAIN),
    Way("rabbit_chx", "none", SUB_ENTRIES, 1_200_000, partial(our_stream, codec="none"), ONCE),
    Way("rabbit_chx", "lz4", SUB_ENTRIES, 1_200_000, partial(our_stream, codec="lz4"), ONCE),
    Way("rabbit_chx", "zstd", SUB_ENTRIES, 1_200_000, partial(our_stream, codec="zstd"), ONCE),
    Way("rstream", "none, bytes", SUB_ENTRIES, 300_000, partial(rstream_rows, codec="No"), RAW),
    # StreamPublisher.sendSubEntries never increases the publishing id. With a publisherRef the broker confirmed
    # five sub-entries, and stored one.
    Way(_JS_CLIENT, "none", SUB_ENTRIES, 300_000, partial(program, IN_JS, (BATCH, "None")), DROPS),
]


def stored(broker: RunningBroker, way: Way, channel: BlockingChannel) -> int:
    """Return how many rows are in the stream or in the queues."""
    if way.into == QUEUED:
        return sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    with StreamReader(broker.stream_url, STREAM) as reader:
        return sum(batch.num_rows for batch in reader)


def measured(broker: RunningBroker, way: Way, rows: int, channel: BlockingChannel) -> tuple[Cost, float]:
    """Return the cost of one run, and the CPU seconds of the broker."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    clear(broker.stream_url)
    time.sleep(1)  # the broker is still busy with the run before
    url, into = (broker.url, EXCHANGE) if way.into == QUEUED else (broker.stream_url, STREAM)
    work = Work(url, into, rows, BODY_BYTES)
    before = cpu_s(broker)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        cost = process.submit(way.publish, work).result()
    broker_cpu = cpu_s(broker) - before
    if (found := stored(broker, way, channel)) != rows:
        raise WrongCountError(f"{found} rows are stored instead of {rows}")
    return cost, broker_cpu


def record(way: Way, runs: list[tuple[Cost, float]]) -> dict[str, Any]:
    """Return the medians of the runs of a way."""
    rates = [cost.rate for cost, _ in runs]
    return {
        "client": way.client,
        "mode": way.mode,
        "into": way.into,
        "rows": runs[0][0].messages,
        "rate": round(statistics.median(rates)),
        "min": round(min(rates)),
        "max": round(max(rates)),
        "client_cpu": round(statistics.median(cost.cpu_per_100k for cost, _ in runs), 3),
        "broker_cpu": round(statistics.median(cpu / cost.messages * 100_000 for cost, cpu in runs), 3),
        "lacks": way.lacks,
    }


def compare(broker: RunningBroker, missing: dict[str, str], rounds: int, part: int) -> list[dict[str, Any]]:
    """Run all ways in turns, except those of missing clients; a way that fails is missing from then on."""
    runs: dict[Way, list[tuple[Cost, float]]] = {way: [] for way in WAYS if way.client not in missing}
    with pika.BlockingConnection(pika_parameters(f"{broker.url}?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, CHX, durable=True)
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, "1")
        for number in range(rounds):
            for way in list(runs):
                try:
                    runs[way].append(measured(broker, way, way.rows // part, channel))
                except Exception as error:
                    if way.client == "rabbit_chx":
                        raise
                    print(f"peers: {way.client} failed in round {number + 1}: {error!r}", file=sys.stderr)
                    missing[f"{way.client}, {way.into}, {way.mode}"] = f"failed: {type(error).__name__}"
                    del runs[way]
            print(f"peers: round {number + 1} of {rounds} is complete", file=sys.stderr)
    records = [record(way, of_way) for way, of_way in runs.items()]
    return [{**one, "of_ours": round(one["rate"] / rate_of_ours(records, one["into"]), 2)} for one in records]


def rate_of_ours(records: list[dict[str, Any]], into: str) -> int:
    """Return the rate of our first mode into queues, a stream, or sub-entries."""
    return int(next(one["rate"] for one in records if (one["client"], one["into"]) == ("rabbit_chx", into)))


def main() -> None:
    """Install, measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a third of the rows and one round, for a look")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, help="write JSON for tools/update.py to this file")
    arguments = parser.parse_args()
    rounds, part = (1, 3) if arguments.quick else (arguments.rounds, 1)
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for client, version in CLIENTS.items():
        try:
            versions[client] = version()
        except MissingClient as reason:
            missing[client] = str(reason)
    load = round(os.getloadavg()[0], 1)
    with docker_broker() as broker:
        records = compare(broker, missing, rounds, part)
        release = broker.version
    print(f"RabbitMQ {release}, rows of {BODY_BYTES} bytes, rounds: {rounds}, load {load} at the start")
    texts = [TableColumn(name, numeric=False) for name in ("client", "into", "mode")]
    numbers = ("rate", "of_ours", "min", "max", "client_cpu", "broker_cpu")
    rows = [
        (
            f"{one['client']} {versions[one['client']]}",
            one["into"],
            one["mode"],
            *(one[name] for name in numbers),
        )
        for one in records
    ]
    print(render_table([*texts, *map(TableColumn, numbers)], rows))
    print(
        "rate: confirmed rows per second; of_ours: rate by that of rabbit_chx, first mode; CPU: seconds per 100,000 rows"
    )
    single, together = (rate_of_ours(records, into) for into in (STREAMED, SUB_ENTRIES))
    print(
        f"sub-entries of rabbit_chx: {together:,} rows/s, {together / single:.1f} times the rate of single rows"
    )
    for client, why in missing.items():
        print(f"NOT COMPARED: {client}: {why}")
    if arguments.results:
        run = {
            "release": release,
            "cores": os.cpu_count(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "load": load,
            "rounds": rounds,
            "quick": arguments.quick,
            "versions": versions,
            "missing": missing,
            "ways": records,
        }
        arguments.results.write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
