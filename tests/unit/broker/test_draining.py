"""The wait for old queues of an append, on a broker whose counts and clock are scripted: a real one has no count of a given age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rabbit_chx.broker.applying import STALE_S, wait_drained
from rabbit_chx.broker.live_broker import QueueCounts
from rabbit_chx.errors import NotFoundError
from rabbit_chx.planning.ring_plan import Append

APPEND = Append(("old.1", "old.2"), ("new",))


class Counts:
    """Queues whose messages by the statistics depend on the time, in seconds; each look takes none, and only `sleep` passes it."""

    vhost = "/"

    def __init__(self, messages: Mapping[str, Sequence[tuple[float, int]]], consumers: int = 1) -> None:
        self.amqp = self.api = self
        self._messages, self._consumers, self.now = messages, consumers, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get_list(self, *_: str, **__: Any) -> list[dict[str, Any]]:
        return [{"name": name, "messages": self._at(name)} for name in self._messages]

    def count(self, queue: str) -> QueueCounts:
        if queue not in self._messages:
            raise NotFoundError("there is none", reply_code=404)
        return QueueCounts(0, 0 if queue == "new" else self._consumers)

    def _at(self, name: str) -> int:
        return [count for since, count in self._messages[name] if since <= self.now][-1]


def waited(broker: Any, longest_s: float = 60) -> Any:
    said: list[str] = []
    return wait_drained(APPEND, broker, longest_s, said.append), said


def test_what_statistics_said_before_the_bind_does_not_count() -> None:
    """They say "empty" at first, and then what there was at the bind."""
    broker = Counts({"old.1": [(0, 0), (STALE_S - 2, 9), (20, 0)], "old.2": [(0, 0)], "new": [(0, 5)]})
    done, said = waited(broker)
    assert (done.is_in_order, done.never_empty, done.after_s) == (True, {}, 20)
    assert said[0] == "waiting for old.1 (0 messages), old.2 (0 messages) to have been empty once: 0 of 60 s"
    assert said[-1] == "waiting for old.1 (9 messages) to have been empty once: 16 of 60 s"


def test_each_queue_is_empty_once_and_not_all_at_a_time() -> None:
    broker = Counts({"old.1": [(0, 0), (9, 4)], "old.2": [(0, 3), (12, 0)], "new": [(0, 0)]})
    done, _ = waited(broker)
    assert (done.is_in_order, done.after_s) == (True, 12)


def test_the_wait_is_bounded_and_names_who_was_never_empty() -> None:
    broker = Counts({"old.1": [(0, 412)], "old.2": [(0, 0)], "new": [(0, 0)]}, consumers=0)
    done, said = waited(broker, 30)
    assert (done.is_in_order, done.never_empty) == (False, {"old.1": QueueCounts(412, 0)})
    assert broker.now == 30
    assert "old.1 (412 messages, no consumer)" in said[-1]


def test_a_queue_that_nobody_can_count_is_not_empty() -> None:
    broker = Counts({"old.1": [(0, 0)], "new": [(0, 0)]})
    done, _ = waited(broker, 10)
    assert done.never_empty == {"old.2": None}


@pytest.mark.parametrize("since", [3.0, 10.0])
def test_a_consumer_that_starts_too_early_is_named(since: float, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Counts({"old.1": [(0, 1), (15, 0)], "old.2": [(0, 0)], "new": [(0, 0)]})
    count = broker.count

    def with_reader(queue: str) -> QueueCounts:
        return QueueCounts(0, 1) if queue == "new" and broker.now >= since else count(queue)

    monkeypatch.setattr(broker, "count", with_reader)
    done, _ = waited(broker)
    assert (done.is_in_order, done.early, done.never_empty) == (False, ("new",), {})
