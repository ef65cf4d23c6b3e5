"""Rows that RabbitMQ confirms and does not store, after a crash at a roll-over: see tools/osiris-roll-over.md.

``PYTHONPATH=tests/support python tools/roll_over_flaw.py``           cut the log where a crash does: certain, half a minute
``PYTHONPATH=tests/support python tools/roll_over_flaw.py --kill 60`` kill the broker (SIGKILL) up to 60 times under load until rows are missing

It starts a broker in Docker, on 127.0.0.1, and removes it. The client follows the rules of the protocol: rows have ids that
rise, and after a reconnect it sends all that is not confirmed again, in order, before anything new.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
from broker_faults import faults_of

from rabbit_chx.errors import UnreachableError
from rabbit_chx.streams import StreamPublisher, StreamReader, WriteLimits
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.writer import StreamWriter
from rabbit_chx.testing import RunningBroker, docker_broker

_DATA = "/var/lib/rabbitmq/mnesia"
_STREAM = "roll-over"
_COORDINATOR_S = (
    8.0  # the streams of a broker that dies in the first seconds of its first stream are never restored
)
_CALL = 20_000
_SEGMENT = 50_000  # bytes: room for 199 rows, even if each one is a chunk
_LAST = 232  # 32 rows are one chunk, if the broker gets them at once
_LOG_HEADER, _CHUNK_HEADER = 8, 48
_SNAPSHOT = 2
_KINDS = ("rows", "tracking delta", "tracking snapshot")


def main() -> None:
    """Run the steps of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", default="4.3", help="the release series (%(default)s)")
    parser.add_argument("--kill", type=int, default=0, metavar="TIMES", help="kill instead of cutting")
    chosen = parser.parse_args()
    # Our publisher verifies what the broker claims to have. Other clients do not, and so it does not here.
    StreamWriter._verify_claim = lambda _: None  # type: ignore[assignment, method-assign]  # noqa: SLF001
    with docker_broker(chosen.series) as broker:
        print(f"RabbitMQ {broker.version}")
        if chosen.kill:
            kill_until_rows_are_missing(broker, chosen.kill)
        else:
            cut(broker)


def cut(broker: RunningBroker) -> list[int]:
    """Cut the log between the snapshot and the rows that it covers; return what is in the stream when all is published again."""
    make_stream(broker, segment_bytes=_SEGMENT)
    with StreamPublisher(
        broker.stream_url, stream=_STREAM, name="load", limits=WriteLimits(window=1_000)
    ) as publisher:
        publish(publisher, 1, 199)
        publish(publisher, 200, 200, row_bytes=_SEGMENT)  # so that row 201 begins a segment
        publish(publisher, 201, _LAST)
    print(f"published and confirmed: {_LAST} rows, ids 1 to {_LAST}; in the stream: {len(stored(broker))}")
    time.sleep(_COORDINATOR_S)
    segment = newest_segment(broker)
    faults_of(broker).kill()
    chunks = list(chunks_of(fetched(broker, segment)[1]))
    for begin, kind, chunk_id, records, _ in chunks:
        print(f"  {segment.rpartition('/')[2]} at {begin}: chunk {chunk_id}, {records} {kind}")
    kinds = [kind for _, kind, *_ in chunks]
    if kinds[:2] != ["tracking snapshot", "rows"]:
        raise SystemExit("the broker has begun the segment otherwise this time: run it again")
    cut_at = chunks[0][-1]
    truncated(broker, segment, cut_at)
    print(
        f"the broker killed, and the segment cut at {cut_at}, after the snapshot, as a crash between the two writes leaves it"
    )
    faults_of(broker).start()
    claimed = last_id_when_up(broker)
    print(f"started again; in the stream: {len(stored(broker))}; the broker's last id of 'load': {claimed}")
    with StreamPublisher(
        broker.stream_url, stream=_STREAM, name="load", limits=WriteLimits(window=1_000)
    ) as publisher:
        report = publish(publisher, 201, 300)
    found = stored(broker)
    print(f"published again: ids 201 to 300; confirmed: {report}")
    tell_missing(found, 300)
    return found


def kill_until_rows_are_missing(broker: RunningBroker, times: int) -> None:
    """Kill the broker under load, and look after each kill whether rows are missing."""
    make_stream(broker, segment_bytes=600)
    rows = 0

    def kill_and_start(after_s: float) -> None:
        time.sleep(after_s)
        faults_of(broker).kill()
        faults_of(broker).start()

    with StreamPublisher(broker.stream_url, stream=_STREAM, name="load") as publisher:
        for kill in range(1, times + 1):
            killer = threading.Thread(target=kill_and_start, args=[_COORDINATOR_S if kill == 1 else 1.0])
            killer.start()
            while killer.is_alive():
                publish(publisher, rows + 1, rows + _CALL)
                rows += _CALL
            found = stored(broker)
            print(f"kill {kill}: {rows:,} rows confirmed, {len(found):,} in the stream", flush=True)
            if len(found) < rows:
                tell_missing(found, rows)
                return
    print(f"all rows are stored after {times} kills: try again, or without --kill")


def make_stream(broker: RunningBroker, segment_bytes: int) -> None:
    """Make the stream."""
    with closing(StreamConnection(stream_settings(broker.stream_url))) as connection:
        connection.create_stream(_STREAM, {"stream-max-segment-size-bytes": str(segment_bytes)})


def publish(publisher: StreamPublisher, first: int, last: int, row_bytes: int = 0) -> int:
    """Publish rows of at least so many bytes, and return how many are confirmed."""
    ids = np.arange(first, last + 1)
    rows = [f"row {row}".ljust(row_bytes) for row in ids]
    return publisher.publish_many(["k"] * len(ids), rows, ids=ids).confirmed


def stored(broker: RunningBroker) -> list[int]:
    """Return the ids of the rows in the stream."""
    with StreamReader(broker.stream_url, _STREAM) as reader:
        return [int(value.as_py()[4:]) for batch in reader for value in batch["value"]]


def tell_missing(found: Sequence[int], rows: int) -> None:
    """Say which confirmed rows are not in the stream."""
    missing = np.setdiff1d(np.arange(1, rows + 1), found)
    places = f", ids {missing[0]} to {missing[-1]}" if len(missing) else ""
    print(f"in the stream: {len(found):,} of {rows:,} confirmed rows; missing: {len(missing):,}{places}")


def last_id_when_up(broker: RunningBroker) -> int:
    """Return the last id that the broker claims to have, as soon as the stream is up.

    Shortly after its start a broker names the leader process of its last run, and a question about its writers ends the connection
    (4.3.6: noproc in osiris:query_writers).
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            with closing(StreamConnection(stream_settings(broker.stream_url))) as connection:
                connection.metadata([_STREAM])
                return connection.publisher_sequence("load", _STREAM)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def newest_segment(broker: RunningBroker) -> str:
    """Return the path of the last segment of the stream."""
    return broker.run("sh", "-c", f"find {_DATA} -path '*_{_STREAM}_*.segment' | sort | tail -1").strip()


def chunks_of(content: bytes) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield begin, kind, id, number of records and end of each chunk (osiris_log.erl)."""
    begin = _LOG_HEADER
    while begin + _CHUNK_HEADER <= len(content):
        kind, records = content[begin + 1], int.from_bytes(content[begin + 4 : begin + 8])
        chunk_id = int.from_bytes(content[begin + 24 : begin + 32])
        data, trailer = (int.from_bytes(content[begin + at : begin + at + 4]) for at in (36, 40))
        end = begin + _CHUNK_HEADER + content[begin + 44] + data + trailer
        yield begin, _KINDS[kind], chunk_id, records, end
        begin = end


def truncated(broker: RunningBroker, path: str, size: int) -> None:
    """Cut a file of a container that is down; its owner stays."""
    member, content = fetched(broker, path)
    member.size = size
    cut = io.BytesIO()
    with tarfile.open(fileobj=cut, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content[:size]))
    docker("cp", "-a", "-", f"{container_of(broker)}:{path.rpartition('/')[0]}", stdin=cut.getvalue())


def fetched(broker: RunningBroker, path: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return a file of a container that is down, with its owner."""
    with tarfile.open(fileobj=io.BytesIO(docker("cp", f"{container_of(broker)}:{path}", "-"))) as archive:
        member = archive.getmembers()[0]
        file = archive.extractfile(member)
        assert file is not None
        return member, file.read()


def container_of(broker: RunningBroker) -> str:
    """Return the name of the container."""
    assert broker.ring_via is not None
    return broker.ring_via[-1]


def docker(*command: str, stdin: bytes = b"") -> bytes:
    """Run Docker, and return what it writes."""
    program = ["docker", *command]
    done = subprocess.run(program, input=stdin, stdout=subprocess.PIPE, timeout=60, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
