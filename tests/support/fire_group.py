"""A group of three members under fire: the queues of a hash exchange, a numbered load, and the store that the handlers write to.

Each member is a process. A program: it is a member until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bounded import Beside
from broker_faults import faults_of
from canary import CANARY, traces_of_canary
from declared import with_login
from delivery_checker import Attempt, History, Judge, Verdict
from effect_store import Effect, EffectStore, effect_store, store_effect
from exchange_types import DIRECT
from fire_load import key_of
from fire_queues import EXCHANGE
from fire_site import Site, site_on
from pika.exceptions import AMQPError
from publishing_support import through
from row_reader import rows_waiting
from tcp_proxy import Proxy

from rabbit_chx import ConsumerGroup, Limits, Publisher, Retries, StreamGroup
from rabbit_chx.consuming import GroupMessage, GroupReading
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker

GROUP_QUEUES = tuple(f"g.{number}" for number in range(6))
_FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-queue-leader-locator": "balanced"}
#: A message may be returned as often as it happens. Before 4.0 this is so by default, and -1 drops it at its first return.
_NO_LIMIT = {"x-delivery-limit": -1}
_STREAM = {"x-queue-type": "stream", "x-queue-leader-locator": "balanced"}
_SUPER_STREAM = "fire-super-stream"
_MEMBERS = ("a", "b", "c")
_STEP = 20
_BATCH_ROWS = 20
_HANDLED_S = 180.0
_END_S = 60.0
#: Seconds for which SIGUSR1 blocks the event loop of a member: more than its `loop_timeout_s`.
HANG_S = 90.0
#: Seconds after the end of a fault within which a group handles messages again.
_RECOVER_S = 5.0


class _Numbers(Beside):
    """The load: some rows at once, then a few at a time until it is told to end."""

    def __init__(self, urls: Sequence[str], burst: int, per_s: float) -> None:
        super().__init__(self._publish_all)
        self._urls = list(urls)
        self._burst = burst
        self._per_s = per_s
        self._over = threading.Event()
        self.handed = 0
        self.confirmed = 0

    def _publish_all(self) -> None:
        with Publisher(
            self._urls, EXCHANGE, retries=Retries(keep_order=True), limits=Limits(blocked_timeout_s=300.0)
        ) as publisher:
            self._publish(publisher, self._burst)
            while not self._over.wait(_STEP / self._per_s):
                self._publish(publisher, _STEP)

    def _publish(self, publisher: Publisher, count: int) -> None:
        numbers = range(self.handed, self.handed + count)
        self.handed += count
        keys, bodies = [key_of(number) for number in numbers], [str(number) for number in numbers]
        self.confirmed += publisher.publish_many(keys, bodies).confirmed

    def end(self) -> None:
        """End it; raise what it has raised."""
        self._over.set()
        self.finish(_HANDLED_S)


@dataclass
class GroupFire:
    """The group, and what happens to it.

    Attributes:
        site: the vhost, and the user of the members.
        folder: what each member writes to stderr.
        store: what the handlers write to.
        urls: where the publisher connects to.
        streams: whether the queues are streams, and the members those of a `StreamGroup`.
        addresses: where the addresses that the nodes advertise for streams are.
        processes: the members by their names.
    """

    site: Site
    folder: Path
    store: EffectStore
    urls: Sequence[str]
    streams: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _load: _Numbers | None = None
    _pause_s_of_row: float = 0.0
    _began: float = 0.0
    _ended: float = 0.0

    def declare(self) -> None:
        """Declare the exchange and its queues. The queues of a cluster have their leaders on different nodes."""
        has_limit = Release(self.site.broker.version).numbers >= (4, 0, 0)
        arguments = _STREAM if self.streams else {**_FIT, **(_NO_LIMIT if has_limit else {})}
        self.site.declare(arguments, [(queue, 1) for queue in GROUP_QUEUES])
        if self.streams:
            self._declare_super_stream()

    def _declare_super_stream(self) -> None:
        """Make the streams the partitions of a super stream, by which the broker shares them."""
        with self.site.channel() as channel:
            channel.exchange_declare(_SUPER_STREAM, DIRECT, durable=True, arguments={"x-super-stream": True})
            for number, queue in enumerate(GROUP_QUEUES):
                order = {"x-stream-partition-order": number}
                channel.queue_bind(queue, _SUPER_STREAM, str(number), arguments=order)

    def run(
        self,
        fault: Callable[[], None],
        member_urls: Iterable[str] | None = None,
        *,
        burst: int = 3_000,
        per_s: float = 100.0,
        pause_s: float = 0.015,
    ) -> dict[str, Any]:
        """Let a fault happen to the group, wait until all is handled, and let the members leave.

        Args:
            fault: makes it; when it returns, it is over.
            member_urls: where each member connects to; None for the broker itself.
            burst: how many rows are there at first, so that messages wait while the fault lasts.
            per_s: how many rows a second come then, until each member handles messages again.
            pause_s: how long the handler of a message takes.
        """
        load = self._load = _Numbers(self.urls, burst, per_s)
        self._pause_s_of_row = pause_s
        load.start()
        for name, url in zip(_MEMBERS, member_urls or [self.member_url] * len(_MEMBERS), strict=True):
            self._start(name, url, pause_s)
        self._wait(self._shared, "each member has its share of the queues", 90)
        self._began = time.monotonic()
        fault()
        self._ended = time.monotonic()
        self._wait(self._all_back, "each member handles messages again", 120)
        time.sleep(1)
        load.end()
        self._wait(self._all_handled, "all is handled", _HANDLED_S)
        self._leave()
        return self._figures()

    @property
    def member_url(self) -> str:
        """Where a member connects to."""
        return (
            with_login(self.site.broker.stream_url, self.site.user, CANARY) if self.streams else self.site.url
        )

    def history(self) -> History:
        """Return what the checker needs: a message is found where the store has taken its effect."""
        assert self._load is not None
        found: dict[str, list[int]] = {queue: [] for queue in GROUP_QUEUES}
        for effect in self.store.taken:
            found[effect.queue].append(effect.number)
        return History(
            attempted=[Attempt(number, key_of(number)) for number in range(self._load.handed)],
            acked=self._load.confirmed,
            found=found,
            ordered=True,
        )

    # -- faults

    def kill_broker(self) -> None:
        """Kill the broker, and start it again."""
        faults_of(self.site.broker).kill()
        time.sleep(1)
        faults_of(self.site.broker).start()

    def close_connections(self) -> None:
        """Close the connections of the members, ten times within 30 s."""
        began = time.monotonic()
        for number in range(10):
            time.sleep(max(0.0, began + number * 3.0 - time.monotonic()))
            self.close_connections_once()

    def close_connections_once(self) -> None:
        """Close the connections of the members."""
        self.site.broker.run("rabbitmqctl", "close_all_user_connections", self.site.user, "fire")

    def freeze_member(self) -> None:
        """Stop a member for 35 s."""
        member = self.processes["b"]
        member.send_signal(signal.SIGSTOP)
        try:
            time.sleep(35)
        finally:
            member.send_signal(signal.SIGCONT)

    def block_event_loop(self) -> None:
        """Block the event loop of a member."""
        self.processes["b"].send_signal(signal.SIGUSR1)
        time.sleep(HANG_S)

    def run_cut_off(self, count: int) -> dict[str, Any]:
        """Run while the lines of so many members let nothing through for 60 s; then new connections work, and the old ones never."""
        with ExitStack() as stack:
            lines = [stack.enter_context(closing(Proxy(self.member_url))) for _ in range(count)]

            def cut_off() -> None:
                for line in lines:
                    line.freeze()
                time.sleep(60)
                for line in lines:
                    line.leave_frozen()

            urls = [through(self.member_url, line.port) for line in lines]
            return self.run(cut_off, urls + [self.member_url] * (len(_MEMBERS) - count))

    def restart(self, name: str) -> None:
        """Kill a member, and start it again."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self._start(name, self.member_url, self._pause_s_of_row)

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.processes.values():
            process.kill()  # also one that is stopped
            process.wait()

    def _start(self, name: str, url: str, pause_s: float) -> None:
        kind = json.dumps(dict(self.addresses)) if self.streams else "queues"
        command = [sys.executable, __file__, kind, url, name, str(self.store.path), str(pause_s)]
        with (self.folder / f"{name}.txt").open("wb") as log:
            self.processes[name] = subprocess.Popen([*command, *GROUP_QUEUES], stderr=log)

    def _wait(self, condition: Callable[[], bool], what: str, within_s: float) -> None:
        """Wait until something is so. A member that has ended fails the test."""
        deadline = time.monotonic() + within_s
        while not condition():
            self._look()
            if time.monotonic() > deadline:
                self._fail(f"not within {within_s:g} s: {what}")
            time.sleep(0.05)
        self._look()

    def _look(self) -> None:
        ended = {
            name: process.returncode for name, process in self.processes.items() if process.poll() is not None
        }
        if ended:
            self._fail(f"members have ended: {ended}")

    def _fail(self, why: str) -> None:
        last = dict.fromkeys(GROUP_QUEUES, "nothing")
        now = time.monotonic()
        for effect in list(self.store.taken):
            last[effect.queue] = f"{effect.number} by {effect.member}, {now - effect.at:.1f} s ago"
        after = f"{now - self._began:.1f} s after the fault began" if self._began else "before the fault"
        logs = "\n".join(f"-- {name}:\n{self._log(name)}" for name in self.processes)
        pytest.fail(
            f"{after}: {why}\nmissing: {self._missing()}\nlast effects: {last}\n{logs}", pytrace=False
        )

    def _missing(self) -> str:
        """Say which of the rows that were handed over have no effect, and what waits in the queues."""
        handed = 0 if self._load is None else self._load.handed
        missing = sorted(set(range(handed)) - {effect.number for effect in list(self.store.taken)})
        try:
            waiting = 0 if self.streams else rows_waiting(self.site.broker.url, GROUP_QUEUES)
        except AMQPError as error:
            return f"{len(missing)} of {handed}, the first {missing[:5]}; the broker says {error!r}"
        return f"{len(missing)} of {handed}, the first {missing[:5]}; {waiting} wait"

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(errors="replace")[-3_000:]

    def _shared(self) -> bool:
        having = {effect.queue: effect.member for effect in list(self.store.taken)}
        return sorted(Counter(having.values()).values()) == [2, 2, 2]

    def _all_back(self) -> bool:
        return {effect.member for effect in self._after()} == set(self.processes)

    def _after(self) -> list[Effect]:
        return [effect for effect in list(self.store.taken) if effect.at > self._ended]

    def _all_handled(self) -> bool:
        assert self._load is not None
        numbers = {effect.number for effect in list(self.store.taken)}
        if len(numbers) < self._load.handed or self.streams:
            return len(numbers) == self._load.handed
        return not rows_waiting(self.site.broker.url, GROUP_QUEUES)

    def _leave(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                code = process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._fail(f"member {name} does not leave")
            assert code == 0, f"member {name} ended with {code}:\n{self._log(name)}"

    def _figures(self) -> dict[str, Any]:
        """Return what the run came to, in seconds from the fault on.

        - refused: effects with a lower generation than the store had seen.
        - queue_pause_s, group_pause_s: the longest time without an effect of one of the queues, and without any.
        - recover_s, all_back_s: from the end of the fault until the next effect, and until each member has handled a message again.
        - overlap_s: the longest time for which a member wrote effects of a queue, taken or refused, after another one had begun; None for
          streams, which have no generations.
        - repeats_at_change: the most effects of a stream that were repeated in a row.
        """
        by_queue: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.store.taken:
            by_queue[effect.queue].append(effect)
        for row in by_queue.values():
            assert overtaken([effect.number for effect in row]) == 0
        first = {effect.member: effect.at for effect in reversed(self._after())}
        return {
            "refused": len(self.store.refused) if self.store.fenced else None,
            "queue_pause_s": round(max(self._pause_s(row) for row in by_queue.values()), 1),
            "group_pause_s": round(self._pause_s(self.store.taken), 1),
            "recover_s": min(first.values()) - self._ended,
            "all_back_s": round(max(first.values()) - self._ended, 1),
            "overlap_s": None
            if self.streams
            else round(max(0.0, *(overlap_s(self.store, queue) for queue in GROUP_QUEUES)), 1),
            "repeats_at_change": max(map(repeats_at_change, by_queue.values())) if self.streams else None,
        }

    def most_repeats(self, unheard_s: float) -> int:
        """Return how many rows of a stream the next member may repeat: the batch in progress, and the one before, whose offset was under way.

        A member that is not heard for longer goes on with its batch for as long.
        """
        return math.floor(min(unheard_s / self._pause_s_of_row, _BATCH_ROWS)) + 2 * _BATCH_ROWS

    def _pause_s(self, effects: Iterable[Effect]) -> float:
        times = [self._began, *(effect.at for effect in effects if effect.at > self._began)]
        return max((b - a for a, b in pairwise(times)), default=0.0)


def overlap_s(store: EffectStore, queue: str) -> float:
    """Return for how long at most a member wrote effects of a queue after one with a higher generation had begun."""
    effects = [effect for effect in (*store.taken, *store.refused) if effect.queue == queue]
    began: dict[int, float] = {}
    for effect in effects:
        began[effect.generation] = min(effect.at, began.get(effect.generation, effect.at))
    return max(
        (
            effect.at - at
            for effect in effects
            for generation, at in began.items()
            if generation > effect.generation
        ),
        default=0.0,
    )


def repeats_at_change(effects: Iterable[Effect]) -> int:
    """Return the most effects of a stream that were repeated in a row."""
    seen = set[int]()
    most = 0
    repeated = 0
    for effect in effects:
        repeated = repeated + 1 if effect.number in seen else 0
        most = max(most, repeated)
        seen.add(effect.number)
    return most


def overtaken(numbers: Iterable[int]) -> int:
    """Return how many numbers come for the first time and behind a higher one."""
    highest, late = -1, 0
    for number in dict.fromkeys(numbers):
        late += number < highest
        highest = max(highest, number)
    return late


def keep(
    group: GroupFire,
    figures: dict[str, Any],
    record: Judge,
    *,
    path: str,
    fault: str,
    promise: str,
    pause_s: float | None = None,
    queue_pause_s: float | None = None,
    unheard_s: float = 0.0,
) -> Verdict:
    """Check what a group promises, and record it. A busy machine gets three times the promised seconds.

    Args:
        group: what the fault happened to.
        figures: what came of it.
        record: checks the history, and records it.
        path: ``"ConsumerGroup"``, and on how many nodes.
        fault: what happened, in words for users.
        promise: what is promised under it, in words for users.
        pause_s: the longest promised time without any effect; None for none.
        queue_pause_s: the longest promised time without an effect of one of the queues; None for none.
        unheard_s: for how long at most a member of a group of streams handles rows while the broker takes no offset.
    """
    bound = group.most_repeats(unheard_s) if group.streams else None
    assert bound is None or figures["repeats_at_change"] <= bound, figures
    verdict = record(group.history(), path=path, fault=fault, promise=promise, repeats_bound=bound, **figures)
    assert figures["recover_s"] <= 3 * _RECOVER_S, figures
    assert pause_s is None or figures["group_pause_s"] <= 3 * pause_s, figures
    assert queue_pause_s is None or figures["queue_pause_s"] <= queue_pause_s + 3 * _RECOVER_S, figures
    return verdict


@contextmanager
def group_fire(
    broker: RunningBroker,
    folder: Path,
    *,
    fenced: bool = True,
    streams: bool = False,
) -> Iterator[GroupFire]:
    """Declare exchange and queues, make the user of the members, and search all that was written for the password at the end.

    Args:
        broker: with a vhost of the test in its URL.
        folder: for the logs of the members.
        fenced: whether the store refuses a lower generation.
        streams: whether the queues are streams.
    """
    with ExitStack() as stack:
        site = stack.enter_context(site_on(broker))
        site.queues = GROUP_QUEUES
        store = stack.enter_context(effect_store(fenced=fenced))
        fire = GroupFire(site, folder, store, [broker.url], streams)
        fire.declare()
        try:
            yield fire
        finally:
            fire.end()
    assert not fire.processes or traces_of_canary(folder) == [], "the password was written down"


async def _be_member(kind: str, url: str, name: str, store: str, pause_s: str, *queues: str) -> None:
    if kind != "queues":
        await _be_stream_member(json.loads(kind), url, name, store, pause_s)
        return

    async def handle(message: GroupMessage) -> None:
        await asyncio.sleep(float(pause_s))
        generation = -1 if message.generation is None else message.generation
        await store_effect(store, message.queue, int(message.body), name, generation)

    async with ConsumerGroup(url, queues, member=name) as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.stop)
        await group.run(handle)


async def _be_stream_member(addresses: dict[str, str], url: str, name: str, store: str, pause_s: str) -> None:
    async def handle(stream: str, batch: Any) -> None:
        for body in batch["value"].to_pylist():
            await asyncio.sleep(float(pause_s))
            await store_effect(store, stream, int(body), name, -1)

    async with StreamGroup(
        url.split(","),
        super_stream=_SUPER_STREAM,
        name="fire",
        member=name,
        reading=GroupReading(batch_rows=_BATCH_ROWS),
        addresses=addresses,
    ) as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.stop)
        await group.run(handle)


if __name__ == "__main__":
    signal.signal(
        signal.SIGUSR1, lambda *_: time.sleep(HANG_S)
    )  # in the thread of the event loop, as a handler
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(_be_member(*sys.argv[1:]))
