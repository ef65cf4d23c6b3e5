"""The checker finds what was planted, and nothing else: 10,000 generated histories, whose faults are known beforehand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from delivery_checker import Attempt, History, check

from rabbit_chx.testing import OrderChecker

QUEUES = ("q0", "q1", "q2")
NOBODY = 1_000_000  # ids from here on were never handed over


def place(key: str) -> str:
    return QUEUES[int(key) % len(QUEUES)]


@dataclass
class Plan:
    """A run, and the faults that were planted into it; no other row is touched twice."""

    chance: random.Random
    rows: list[Attempt]
    acked: set[int]
    found: dict[str, list[int]]
    unread: set[str] = field(default_factory=set)
    republished: int = 0
    elsewhere: set[int] = field(default_factory=set)
    planted: Counter[str] = field(default_factory=Counter)
    touched: set[int] = field(default_factory=set)

    def take(self, count: int) -> list[Attempt]:
        """Choose rows that no fault has touched."""
        free = [row for row in self.rows if row.id not in self.touched]
        chosen = self.chance.sample(free, min(count, len(free)))
        self.touched.update(row.id for row in chosen)
        return chosen

    def copy(self, row: Attempt) -> None:
        """Put another copy anywhere behind the first."""
        queue = self.found[place(row.key)]
        queue.insert(self.chance.randint(queue.index(row.id) + 1, len(queue)), row.id)

    def history(self) -> History:
        """The run as the checker sees it."""
        return History(
            attempted=self.rows,
            acked=self.acked,
            found=self.found,
            unread=self.unread,
            queue_for=place,
            ordered=True,
            republished=self.republished,
            elsewhere=self.elsewhere,
        )


def lose(plan: Plan) -> None:
    for row in plan.take(plan.chance.randint(1, 3)):
        plan.found[place(row.key)].remove(row.id)
        plan.acked.add(row.id)
        plan.planted["lost"] += 1


def repeat(plan: Plan) -> None:
    for row in plan.take(plan.chance.randint(1, 3)):
        plan.copy(row)
        plan.republished += 1
        plan.planted["duplicated"] += 1


def repeat_uncounted(plan: Plan) -> None:
    for row in plan.take(plan.chance.randint(1, 3)):
        plan.copy(row)
        plan.planted["duplicated"] += 1
        plan.planted["uncounted"] += 1


def swap(plan: Plan) -> None:
    """Let one row of a key stand directly behind the next one of the same key."""
    by_key: dict[str, list[Attempt]] = {}
    for row in plan.rows:
        by_key.setdefault(row.key, []).append(row)
    pairs = [
        pair
        for rows in by_key.values()
        for pair in pairwise(rows)
        if not plan.touched & {row.id for row in pair}
    ]
    if not pairs:
        return
    first, second = plan.chance.choice(pairs)
    queue = plan.found[place(first.key)]
    queue.remove(first.id)
    queue.insert(queue.index(second.id) + 1, first.id)
    plan.touched |= {first.id, second.id}
    plan.planted["out_of_order"] += 1


def misplace(plan: Plan) -> None:
    for row in sorted(
        plan.take(plan.chance.randint(1, 3)), reverse=True
    ):  # so that their own order holds there
        plan.found[place(row.key)].remove(row.id)
        plan.found[place(str(int(row.key) + 1))].insert(0, row.id)
        plan.planted["wrong_queue"] += 1


def make_up(plan: Plan) -> None:
    for _ in range(plan.chance.randint(1, 3)):
        queue = plan.found[plan.chance.choice(QUEUES)]
        queue.insert(plan.chance.randint(0, len(queue)), NOBODY + plan.chance.randrange(5))
        plan.planted["unexpected"] += 1


def leave_unread(plan: Plan) -> None:
    """Stop reading a queue; what was confirmed and is behind that point is no loss."""
    queue = plan.chance.choice(QUEUES)
    ids = plan.found[queue]
    behind = plan.chance.randint(0, len(ids))
    mine = {row.id for row in plan.rows if place(row.key) == queue}
    if plan.touched & mine or set(ids) - mine:
        return  # what is planted there could not be seen any more
    plan.touched |= mine
    del ids[behind:]
    plan.unread.add(queue)
    plan.planted["not_read"] += 1


def take_away(plan: Plan) -> None:
    """Let the fault itself remove rows, as the deletion of a queue does; nothing is wrong with that."""
    for row in plan.take(plan.chance.randint(1, 3)):
        plan.found[place(row.key)].remove(row.id)
        plan.elsewhere.add(row.id)


def forget_answer(plan: Plan) -> None:
    """Let rows be found that the publisher did not call confirmed; nothing is wrong with that."""
    for row in plan.take(plan.chance.randint(1, 3)):
        plan.acked.discard(row.id)


FAULTS: tuple[Callable[[Plan], None], ...] = (
    lose,
    repeat,
    repeat_uncounted,
    swap,
    misplace,
    make_up,
    leave_unread,
    take_away,
    forget_answer,
)


def planned(seed: int) -> Plan:
    """Return a run with planted faults; every tenth has none."""
    chance = random.Random(seed)  # noqa: S311  # the same histories each time
    keys = chance.randint(1, 8)
    rows = [Attempt(id_, str(chance.randrange(keys))) for id_ in range(chance.randint(0, 60))]
    found: dict[str, list[int]] = {queue: [] for queue in QUEUES}
    for row in rows:
        found[place(row.key)].append(row.id)
    plan = Plan(chance, rows, {row.id for row in rows}, found)
    if seed % 10:
        for fault in chance.sample(FAULTS, chance.randint(1, len(FAULTS))):
            fault(plan)
    return plan


def test_what_is_planted_is_found_and_nothing_else() -> None:
    seen: Counter[str] = Counter()
    for seed in range(10_000):
        plan = planned(seed)
        history = plan.history()
        verdict = check(history)
        kinds = ("lost", "duplicated", "out_of_order", "wrong_queue", "unexpected", "uncounted")
        answer = {kind: getattr(verdict, kind) for kind in kinds} | {"not_read": len(verdict.not_read)}
        assert answer == {kind: plan.planted[kind] for kind in answer}, (seed, str(verdict))
        assert verdict.passed is not any(plan.planted[kind] for kind in answer if kind != "duplicated"), seed
        seen.update(kind for kind in answer if plan.planted[kind])
        seen["none"] += verdict.passed
    assert all(seen[kind] > 500 for kind in (*answer, "none")), seen


def test_the_order_is_that_of_the_order_checker() -> None:
    """Queues in any order: the product's own checker of order counts the same."""
    wrong = 0
    for seed in range(500):
        chance = random.Random(seed)  # noqa: S311  # the same histories each time
        rows = [Attempt(id_, str(chance.randrange(3))) for id_ in range(30)]
        ids = [chance.randrange(30) for _ in range(60)]
        numbers: dict[str, list[int]] = {}
        for row in rows:
            numbers.setdefault(row.key, []).append(row.id)
        checker = OrderChecker()
        for id_ in ids:
            checker.handled(rows[id_].key, numbers[rows[id_].key].index(id_))
        verdict = check(History(rows, 0, {"q": ids}, ordered=True))
        assert verdict.out_of_order == checker.report().out_of_order, seed
        wrong += verdict.out_of_order
    assert wrong > 500


ROWS = [Attempt(1, "a"), Attempt(2, "b"), Attempt(3, "a")]


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (History(ROWS, {1, 2, 3}, {"q": [1, 2, 3]}), "3 attempted, 3 acked, 3 ok: passed"),
        (History(ROWS, {1}, {"q": [1, 2]}), "3 attempted, 1 acked, 2 ok, 1 recovered: passed"),
        (History(ROWS, {1, 2, 3}, {"q": [2]}), "3 attempted, 3 acked, 1 ok: 2 lost (1, 3)"),
        (History(ROWS, 3, {"q": [2]}), "3 attempted, 3 acked, 1 ok: 2 lost"),
        (History(ROWS, 4, {"q": [1, 2, 3]}), "3 attempted, 4 acked, 3 ok: 1 lost"),
        (History(ROWS, 3, {"q": [2]}, elsewhere={1, 3}), "3 attempted, 3 acked, 1 ok: passed"),
        (History(ROWS, 2, {"q": [2]}, unread={"q"}), "3 attempted, 2 acked, 1 ok: not read: q"),
        (History(ROWS, {1, 2}, {"q": [2]}, unread={"q"}), "3 attempted, 2 acked, 1 ok: not read: q"),
        (History(ROWS, {9}, {"q": [1]}), "3 attempted, 1 acked, 1 ok, 1 recovered: 1 lost (9)"),
        (
            History(ROWS, 3, {"q": [1, 2, 3, 1, 1]}, republished=1),
            "3 attempted, 3 acked, 3 ok, 2 duplicated: 1 uncounted (1, 1)",
        ),
        (
            History(ROWS, 3, {"q": [3, 2, 1]}, ordered=True),
            "3 attempted, 3 acked, 3 ok: 1 out of order (1)",
        ),
        (
            History(ROWS, 3, {"q": [1, 2, 3]}, queue_for={"a": "q", "b": None}.get),
            "3 attempted, 3 acked, 3 ok: 1 in the wrong queue (2)",
        ),
        (
            History([], 0, {"q": list(range(7))}),
            "0 attempted, 0 acked, 0 ok: 7 unexpected (0, 1, 2, 3, 4, ...)",
        ),
    ],
)
def test_a_verdict_says_what_is_wrong(history: History, says: str) -> None:
    verdict = check(history)
    assert str(verdict) == says
    assert verdict.passed is says.endswith("passed")


def test_a_repeat_behind_its_first_copy_is_in_order_and_in_another_queue_it_is_a_first_copy_there() -> None:
    history = History(ROWS, 3, {"q": [1, 2, 3, 1], "p": [3, 1]}, ordered=True)
    assert check(history).out_of_order == 1
    assert check(replace(history, found={"q": [1, 2, 3, 1], "p": [1, 3]})).out_of_order == 0


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        check(History([Attempt(1, "a"), Attempt(1, "b")], 0, {}))


def test_a_key_that_changed_its_queue_in_the_run_may_be_in_either() -> None:
    rows = [Attempt(number, "1") for number in range(3)]
    found = {"q0": [0], "q1": [1], "q2": [2]}
    history = History(attempted=rows, acked=3, found=found, queue_for=lambda _: {"q0", "q1"})
    assert check(history).wrong_queue == 1
