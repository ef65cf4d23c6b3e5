"""When a queue that stands is consumed anew: each test tells what the looks see."""

from __future__ import annotations

from rabbit_chx.consuming.session import StallDetector


def looks(watch: StallDetector, count: int, *, waiting: int = 5, delivered: int = 7) -> list[int]:
    """Look so many times and return at which looks the queue is to be consumed anew."""
    return [number for number in range(1, count + 1) if watch.check("q", waiting, delivered)]


def test_a_queue_that_delivers_nothing_for_two_looks_is_consumed_anew_ever_more_rarely() -> None:
    assert looks(StallDetector(), 40) == [2, 5, 10, 19, 36]


def test_after_two_renewals_in_vain_the_cure_is_named() -> None:
    watch = StallDetector()
    told = [warning for _ in range(10) if (warning := watch.check("q", 1234, 7))]
    assert told[0] == told[1] == "q: 1,234 messages wait and none is delivered: consuming it anew"
    assert "restart the node that leads the queue" in told[2]


def test_a_queue_that_delivers_is_left_alone() -> None:
    watch = StallDetector()
    assert not any(watch.check("q", 5, delivered) for delivered in range(20))


def test_a_queue_that_is_empty_or_busy_between_two_looks_is_left_alone() -> None:
    watch = StallDetector()
    for _ in range(5):
        assert watch.check("q", 5, 7) is None
        assert watch.check("q", 0, 7) is None
        assert watch.check("q", 5, 7) is None
        watch.forget("q")


def test_queues_are_told_apart() -> None:
    watch = StallDetector()
    assert watch.check("p", 5, 7) is None
    assert watch.check("q", 5, 7) is None
    assert watch.check("p", 5, 7) is not None
