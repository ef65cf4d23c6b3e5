"""Shares of a ring, and what a change moves."""

from __future__ import annotations

from collections.abc import Callable

from command_line import BIND, RING, Answer

from rabbit_chx.analysis import movement
from rabbit_chx.routing import HashRing


def test_simulate_gives_exact_shares_and_what_a_change_moves(answer: Answer) -> None:
    document = answer("simulate", *BIND, "--unbind", "q1", "--add", "q9=2")
    assert {row["destination"]: row["share"] for row in document["shares"]} == RING.shares()
    changed = RING.unbind("q1").bind("q9", 2)
    assert document["change"]["shares"]["moved"] == RING.share_moved(changed)
    less = document["change"]["less"]
    assert set(less) == {"arranged", "slots"}
    assert 0 < less["arranged"] <= document["change"]["shares"]["moved"]
    cells = {(cell["from"], cell["to"]): cell["amount"] for cell in document["change"]["shares"]["cells"]}
    assert cells == movement(RING, changed).amounts
    assert (document["sample"], document["change"]["messages"]) == (None, None)


def test_simulate_reports_when_less_is_possible(shown: Callable[..., str]) -> None:
    queues = [f"--bind=q{n}=10" for n in range(12)]
    (less,) = (
        line for line in shown("simulate", *queues, "--unbind", "q4").splitlines() if line.startswith("less")
    )
    ring = HashRing.from_bindings([(f"q{n}", 10) for n in range(12)])
    last_in_the_gap = HashRing.from_bindings([(f"q{n}", 10) for n in (0, 1, 2, 3, 11, *range(5, 11))])
    assert less == (
        f"less    {ring.share_moved(last_in_the_gap):.3%} in the order that topology arrange writes; "
        f"{ring.shares()['q4']:.3%} with slots instead of the ring"
    )
