"""What a change would move in a better way; what is printed is in the transcripts."""

from __future__ import annotations

from command_line import Ran

from rabbit_chx.routing import HashRing


def test_compare_reports_when_less_is_possible(ran: Ran) -> None:
    _, out, _ = ran("compare", "q{0..11}=10", "--remove", "q4")
    (only,) = (line for line in out.splitlines() if line.startswith("or only"))
    ring = HashRing.from_bindings([(f"q{n}", 10) for n in range(12)])
    last_in_the_gap = HashRing.from_bindings([(f"q{n}", 10) for n in (0, 1, 2, 3, 11, *range(5, 11))])
    assert only == (
        f"or only  {ring.share_moved(last_in_the_gap):.3%} in the order that arrange writes; "
        f"{ring.shares()['q4']:.3%} with slots instead of the ring"
    )
