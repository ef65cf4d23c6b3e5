"""A stream under fire: rows that a publisher writes while something happens, a reader beside it, and what is there at the end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bounded import Beside, until
from broker_faults import faults_of
from cluster import RunningCluster
from delivery_checker import Attempt, History, Judge, Verdict

from rabbit_chx.errors import PublishError
from rabbit_chx.streams import StreamPublisher, StreamReader, WriteLimits
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import open_any, settings_of, stream_settings
from rabbit_chx.testing import RunningBroker

#: The streams of a broker that dies in the first seconds of its first stream never come back ("Error locating stream members:
#: noproc"; 4.3.6).
COORDINATOR_S = 8.0
_STEP = 5_000
_LONGEST_PAUSE_S = 0.2
_DIGITS = 12
_FILLER = "." * 80
_LAST_CALLS = 3


def bodies_of(first: int, rows: int) -> list[str]:
    """Return bodies that begin with the number of the row."""
    return [f"{number:0{_DIGITS}}{_FILLER}" for number in range(first, first + rows)]


def numbers_in(batch: Any) -> list[int]:
    """Return the numbers of rows."""
    texts = pc.binary_slice(batch["value"], 0, _DIGITS)
    numbers: list[int] = texts.cast(pa.string()).cast(pa.int64()).to_pylist()
    return numbers


def stored(url: str | Sequence[str], stream: str = "s", **how: Any) -> list[int]:
    """Return the numbers of all rows of a stream, in its order."""
    with StreamReader(url, stream, **how) as reader:
        return [number for batch in reader for number in numbers_in(batch)]


def make_stream(broker: RunningBroker, stream: str = "s", **arguments: str) -> None:
    """Make a stream; in the names of its arguments a dash is an underscore."""
    with closing(StreamConnection(stream_settings(broker.stream_url))) as connection:
        connection.create_stream(stream, {name.replace("_", "-"): each for name, each in arguments.items()})


def delete_stream(broker: RunningBroker) -> None:
    """Delete the stream `s`."""
    with closing(StreamConnection(stream_settings(broker.stream_url))) as connection:
        connection.delete_stream("s")


def addresses_of(cluster: RunningCluster) -> dict[str, str]:
    """Return where the addresses that the nodes advertise are for us."""
    hosts = (name.partition("@")[2] for name in cluster.names)
    return {
        f"{host}:5552": f"127.0.0.1:{node.stream_port}"
        for host, node in zip(hosts, cluster.nodes, strict=True)
    }


def leader_of(cluster: RunningCluster, urls: Sequence[str], stream: str = "s") -> RunningBroker:
    """Return the node that leads a stream, when it has a replica at each other node.

    Args:
        cluster: the cluster.
        urls: the stream URL of each node, in the order of the nodes.
        stream: the stream.
    """
    hosts = [name.partition("@")[2] for name in cluster.names]

    def leader() -> str | None:
        with closing(open_any(settings_of(urls))) as connection:
            places = connection.metadata([stream], missing_ok=True)[stream]
        is_whole = places.leader is not None and len(places.replicas) == len(hosts) - 1
        return places.leader.host if places.leader is not None and is_whole else None

    return cluster.nodes[hosts.index(str(until(leader, f"{stream} has a leader and all replicas")))]


@dataclass
class StreamRun:
    """One publisher, from its first row to its end, and a reader that follows it.

    Attributes:
        handed: how many rows it was given.
        confirmed: how many of them it called confirmed.
        resent: as in `StreamReport`.
        repaired: as in `StreamReport`.
        reconnects: as in `StreamReport`.
        error: what it raised, or None.
        calls: when it knew of how many confirmed rows.
        fault_ended: when the fault was over, in seconds of the monotonic clock.
        read: the rows that the reader was given, in their order.
    """

    handed: int = 0
    confirmed: int = 0
    resent: int = 0
    repaired: int = 0
    reconnects: int = 0
    error: PublishError | None = None
    calls: list[tuple[float, int]] = field(default_factory=list)
    fault_ended: float | None = None
    read: list[int] = field(default_factory=list)

    @property
    def recover_s(self) -> float | None:
        """Seconds from the end of the fault until rows are confirmed."""
        after = [at for at, _ in self.calls if self.fault_ended is not None and at > self.fault_ended]
        return after[0] - (self.fault_ended or 0.0) if after else None

    @property
    def outcome(self) -> str:
        """How it ended."""
        ended = "complete"
        if self.error is not None:
            words = re.sub(r"^rabbitmq-stream\S* ", "", f"{self.error.__cause__}")
            ended = f"{words:.120} ..."
        return f"{ended}; {self.repaired:,} rows repaired" if self.repaired else ended

    def publish(
        self,
        url: str | Sequence[str],
        fault: Callable[[StreamRun], None],
        *,
        window: int = 1_000,
        follow: bool = True,
        rows: int = _STEP,
        pause_s: float | None = None,
        **options: Any,
    ) -> None:
        """Write rows until the fault is over, and some more; read them meanwhile.

        Args:
            url: of the publisher.
            fault: what happens meanwhile, in a thread of its own.
            window: how many rows it may have unconfirmed: few of them make it slow, and there are pauses then.
            follow: whether a reader reads meanwhile, at the same URL.
            rows: the rows of a call.
            pause_s: the pause after a call, in seconds; None for as long as the call, where the window makes pauses.
            options: further arguments of the publisher; the reader has the addresses.
        """
        happening = Beside(lambda: fault(self))
        over = threading.Event()
        reader = Beside(lambda: self._follow(url, over, options.get("addresses")))
        try:
            with StreamPublisher(
                url, stream="s", name="load", limits=WriteLimits(window=window), **options
            ) as publisher:
                self.give(publisher, rows)
                happening.start()
                if follow:
                    reader.start()
                while happening.is_alive():
                    began = time.monotonic()
                    self.give(publisher, rows)
                    usual_s = 0.0 if window > _STEP else min(_LONGEST_PAUSE_S, time.monotonic() - began)
                    time.sleep(usual_s if pause_s is None else pause_s)
                self.fault_ended = happening.ended
                for _ in range(_LAST_CALLS):
                    self.give(publisher, rows)
        except PublishError as error:
            self.error = error
        finally:
            over.set()
        happening.finish()
        self.fault_ended = happening.ended
        if follow:
            reader.finish()

    def give(self, publisher: StreamPublisher, rows: int = _STEP) -> None:
        """Give the publisher the next rows, and count what it says of them."""
        first, self.handed = self.handed + 1, self.handed + rows
        ids = np.arange(first, first + rows) if publisher._name else None
        try:
            report = publisher.publish_many(["k"] * rows, bodies_of(first, rows), ids=ids)
        except PublishError as error:
            report = error.report
            raise
        finally:
            self.confirmed += report.confirmed
            self.resent += report.resent
            self.repaired += report.repaired
            self.reconnects += report.reconnects
            self.calls.append((time.monotonic(), self.confirmed))

    def _follow(self, url: str | Sequence[str], over: threading.Event, addresses: Any) -> None:
        start: Any = "first"
        expected = None
        while True:
            is_last = over.is_set()
            with StreamReader(url, "s", start=start, expect=expected, addresses=addresses) as reader:
                for batch in reader:
                    self.read += numbers_in(batch)
                start, expected = reader.next_offset, reader.fingerprint
            if is_last:
                return
            over.wait(0.2)

    def history(self, found: list[int], *, elsewhere: Sequence[int] = (), repeats: int = 0) -> History:
        """Return what the checker needs: all rows have one key, so all must be in order.

        Args:
            found: the rows of the stream.
            elsewhere: rows that the fault took away.
            repeats: how many copies may be there.
        """
        return History(
            attempted=[Attempt(number, "k") for number in range(1, self.handed + 1)],
            acked=self.confirmed if self.error else range(1, self.handed + 1),
            found={"s": found},
            ordered=True,
            republished=repeats,
            elsewhere=elsewhere,
        )


def published(url: str | Sequence[str], fault: Callable[[StreamRun], None], **how: Any) -> StreamRun:
    """Return a run that was published under a fault, as `StreamRun.publish` says."""
    run = StreamRun()
    run.publish(url, fault, **how)
    return run


def keep(
    run: StreamRun,
    found: list[int],
    record: Judge,
    *,
    outcome: str | None = None,
    **words: Any,
) -> Verdict:
    """Check a run against the rows of the stream, and record it. Rows with the number 0 are those of others."""
    if others := words.pop("others", 0):
        assert found.count(0) >= others
        found = [number for number in found if number]
    if run.read:
        assert run.read == found, "the reader was given other rows"
    history = {name: words.pop(name) for name in ("elsewhere", "repeats") if name in words}
    recover_s = run.recover_s if run.error is None else None
    return record(run.history(found, **history), recover_s=recover_s, outcome=outcome or run.outcome, **words)


def kill_again_and_again(broker: RunningBroker, times: int) -> Callable[[StreamRun], None]:
    """Return a fault: the broker is killed and started, and killed again when rows are confirmed."""

    def kill(run: StreamRun) -> None:
        time.sleep(COORDINATOR_S)
        for _ in range(times):
            faults_of(broker).kill()
            faults_of(broker).start()
            until(lambda: run.calls and run.calls[-1][0] > time.monotonic() - 0.5, "rows are confirmed")

    return kill


def until_confirmed(run: StreamRun, after: float) -> None:
    """Wait until rows are confirmed after a moment of the monotonic clock."""
    until(lambda: run.calls[-1][0] > after, "rows are confirmed", 90)
