"""The messages between submitters and the sending thread, without a thread: when they expire, and what is counted."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import fields

import pytest
from exposition import parsed_exposition

from rabbit_chx.errors import UnknownOutcomeError
from rabbit_chx.publishing.outbox import Message, Outbox, SharedStats


class Site:
    """An outbox with room for `most` messages; each expires after 10 s of a clock that stands still."""

    def __init__(self, most: int) -> None:
        self.now = 100.0
        self.outbox = Outbox(most, 1 << 20, 10.0, lambda: self.now)

    def submit(self) -> Message:
        """Submit a message now."""
        message = Message(b"k", b"b", b"", b"", Future(), self.now)
        self.outbox.submit(message)
        return message


def unknown(_: Message) -> UnknownOutcomeError:
    return UnknownOutcomeError("not answered")


def test_the_time_in_which_a_message_waits_for_room_does_not_count() -> None:
    site = Site(most=1)
    first, second = site.submit(), site.submit()
    site.now += 8.0
    site.outbox.settle([first.number])
    assert site.outbox.left_s() == 10.0
    site.now += 9.0
    site.outbox.expire(unknown)
    assert not second.future.done()
    site.now += 1.0
    site.outbox.expire(unknown)
    assert second.future.done()


@pytest.mark.parametrize("kind", ["returned", "nacked", "failed"])
def test_latencies_are_those_of_confirmed_messages_only(kind: str) -> None:
    site = Site(most=2)
    confirmed, other = site.submit(), site.submit()
    site.now += 1.0
    site.outbox.settle([confirmed.number])
    site.now += 30.0
    site.outbox.settle([other.number], kind, unknown)
    stats = site.outbox.stats(0, 0)
    assert (stats.confirmed, getattr(stats, kind)) == (1, 1)
    assert stats.p50_s == stats.p99_s == pytest.approx(1.0, rel=0.06)


def test_only_messages_that_were_sent_and_failed_are_unknown() -> None:
    site = Site(most=3)
    confirmed, failed = site.submit(), site.submit()
    assert site.outbox.take(2, 1 << 20) is not None
    not_sent = site.submit()
    site.outbox.settle([confirmed.number])
    site.outbox.settle([failed.number, not_sent.number], "failed", unknown)
    stats = site.outbox.stats(0, 0)
    assert (stats.confirmed, stats.failed, stats.unknown) == (1, 2, 1)


def test_stats_are_metrics_of_prometheus() -> None:
    text = SharedStats(submitted=3, confirmed=2, p99_s=0.25).to_prometheus(exchange='a"b')
    assert 'rabbit_chx_publisher_confirmed{exchange="a\\"b"} 2\n' in text
    assert "# TYPE rabbit_chx_publisher_confirmed counter\n" in text
    assert "# TYPE rabbit_chx_publisher_in_flight gauge\n" in text
    assert 'rabbit_chx_publisher_p99_seconds{exchange="a\\"b"} 0.25\n' in text
    assert "p50" not in text, "without a confirm there is none"
    assert "rabbit_chx_publisher_submitted 0\n" in SharedStats().to_prometheus()


def test_each_figure_is_a_metric_with_a_sentence() -> None:
    found = parsed_exposition(SharedStats(p50_s=0.1, p99_s=0.2).to_prometheus(worker=3))
    names = [
        each.name.removesuffix("_s") + "_seconds" * each.name.endswith("_s") for each in fields(SharedStats)
    ]
    assert [name.removeprefix("rabbit_chx_publisher_") for name in found] == names
    assert found["rabbit_chx_publisher_submitted"].help == "Messages given to the publisher."
    for family in found.values():
        assert len(family.help.split()) > 3
        assert family.help.endswith(".")
        assert family.value(worker="3") >= 0
