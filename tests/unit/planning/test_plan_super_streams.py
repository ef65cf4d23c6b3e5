"""A super stream is one ordered list: what a change of it moves, and what becomes of bindings that other tools made."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from rabbit_chx import SuperStream, Topology
from rabbit_chx.topology import BindingDefinition, LiveTopology, Plan, check, diff, plan
from rabbit_chx.topology.modulus import order_partitions
from rabbit_chx.topology.objects import PARTITION_ORDER


def sales(*keys: str, limit: float | None = None) -> Topology:
    setting = "" if limit is None else f"max_share_moved = {limit}\n"
    return Topology.from_toml(
        f'{setting}[[super_streams]]\nname = "sales"\nbinding_keys = {json.dumps(keys)}\n'
    )


def numbered(live: LiveTopology, *numbers: int | None) -> LiveTopology:
    """Return the bindings, in their order, with these numbers; None for none."""
    bindings, _ = order_partitions(live.bindings)
    tables = [{} if number is None else {PARTITION_ORDER: number} for number in numbers]
    return replace(
        live,
        bindings=tuple(replace(one, arguments=table) for one, table in zip(bindings, tables, strict=True)),
    )


def live_of(*keys: str) -> LiveTopology:
    return LiveTopology.of_file(sales(*keys))


def states_of(made: Plan, live: LiveTopology) -> list[list[BindingDefinition]]:
    """Return the bindings before and after each change of one."""
    bound = {one.identity: one for one in live.bindings}
    states = [[*bound.values()]]
    for change in made.changes:
        if change.kind == "binding":
            if change.action == "bind":
                bound[change.binding.identity] = change.binding
            else:
                del bound[change.binding.identity]
            states.append([*bound.values()])
    return states


def map_of(bindings: list[BindingDefinition]) -> SuperStream | None:
    bound, is_ordered = order_partitions(bindings)
    assert is_ordered, "no two partitions have one number"
    return SuperStream([str(one.destination) for one in bound]) if bound else None


def test_a_plan_ends_with_the_partitions_of_the_file_once_in_order() -> None:
    """Each partition occurs once, and each number, at every moment; the shares are those of the maps."""
    chance = random.Random(17)  # noqa: S311  # no secret
    for _ in range(60):
        before, after = (chance.sample("abcdef", chance.randint(1, 6)) for _ in range(2))
        live, wanted = live_of(*before), sales(*after)
        made = plan(wanted, live)
        maps = [map_of(state) for state in states_of(made, live)]
        assert all(one is None or len(set(one.partitions)) == len(one.partitions) for one in maps)
        first, last = maps[0], maps[-1]
        assert first is not None
        assert last is not None
        assert last.partitions == tuple(f"sales-{key}" for key in after)
        change = made.rings["sales"]
        assert change.moved == first.share_moved(last)
        assert change.moved_at_worst == max(1.0 if one is None else first.share_moved(one) for one in maps)
        assert bool(made.changes) is bool(diff(wanted, live)) is (before != after)
        found = [one for one in check(live, wanted).findings if one.kind in ("order", "different")]
        assert [one.share for one in found] == ([] if before == after else [change.moved])


def test_the_json_of_a_plan_has_the_super_stream_among_its_rings() -> None:
    (ring,) = json.loads(plan(sales("a", "b", "c"), live_of("a", "b")).to_json())["rings"]
    assert (ring["exchange"], ring["moved"]) == ("sales", pytest.approx(2 / 3))
    assert ring["before"]["partitions"] == ["sales-a", "sales-b"]
    assert ring["after"]["partitions"] == ["sales-a", "sales-b", "sales-c"]
    assert ring["matrix"]["moved"] == ring["moved"]


@pytest.mark.parametrize("limit", [0.6, 0.7])
def test_it_obeys_the_limit(limit: float) -> None:
    made = plan(sales("a", "b", "c", limit=limit), live_of("a", "b"))
    assert [one.allow_with for one in made.refusals if one.allow_with] == (
        ["--allow moved=0.6667"] if limit < 2 / 3 else []
    )
    assert not made.refused(allow_moved=0.7)


def test_an_entry_has_its_own_limit_which_a_written_file_keeps() -> None:
    text = '[[super_streams]]\nname = "sales"\nbinding_keys = ["a", "b", "c"]\nmax_share_moved = 0.1\n'
    wanted = Topology.from_toml(text)
    assert [one.kind for one in plan(wanted, live_of("a", "b")).refusals] == ["moved"]
    assert Topology.from_toml(wanted.to_toml()) == wanted


@pytest.mark.parametrize("numbers", [(10, 20, 30), (0, 1, 7)])
def test_numbers_of_another_tool_stay_if_their_order_is_that_of_the_file(numbers: tuple[int, ...]) -> None:
    live = numbered(live_of("a", "b", "c"), *numbers)
    assert plan(sales("a", "b", "c"), live).changes == ()
    assert check(live, sales("a", "b", "c")).sound
    moved = plan(sales("b", "a", "c"), live)
    assert moved.rings["sales"].moved == pytest.approx(2 / 3)


@pytest.mark.parametrize("numbers", [(None, None, None), (0, 1, None), (0, 1, 1)])
def test_an_order_that_no_number_shows_is_refused_unless_all_keys_may_move(
    numbers: tuple[int | None, ...],
) -> None:
    live = numbered(live_of("a", "b", "c"), *numbers)
    made = plan(sales("a", "b", "c"), live)
    (refusal,) = made.refusals
    assert (refusal.allow_with, refusal.share) == ("--allow moved=1", 1.0)
    assert not made.refused(allow_moved=1.0)
    assert made.rings["sales"].moved == 1.0
    assert made.rings["sales"].matrix() is None
    last = map_of(states_of(made, live)[-1])
    assert last is not None
    assert last.partitions == ("sales-a", "sales-b", "sales-c")


def test_another_binding_of_the_exchange_is_removed() -> None:
    other = BindingDefinition("sales", "other", "x", {PARTITION_ORDER: 9})
    live = live_of("a", "b")
    made = plan(sales("a", "b"), replace(live, bindings=(*live.bindings, other)))
    assert [(change.action, change.subject) for change in made.changes] == [("unbind", other)]
    assert made.rings["sales"].moved == pytest.approx(2 / 3)


def test_a_check_says_that_no_number_shows_the_order() -> None:
    wanted = sales("a", "b")
    for numbers in ((None, None), (1, 1)):
        found = check(numbered(live_of("a", "b"), *numbers), wanted)
        assert {one.kind for one in found.findings} <= {"missing", "unexpected"}
        assert found.unordered == {"sales": "its partitions do not have a number each"}
    assert check(numbered(live_of("a", "b"), 5, 9), wanted).unordered == {}


def test_what_a_missing_partition_moves_is_said_once() -> None:
    live, wanted = live_of("a", "b"), sales("a", "b", "c")
    shares = [(one.kind, one.destination, one.share) for one in check(live, wanted).findings]
    assert shares == [
        ("missing", "sales-c", None),
        ("missing", "sales-c", None),
        ("different", None, pytest.approx(2 / 3)),
    ]
    assert not any("clients see" in one.message for one in check(live, wanted).findings)
    whole = diff(wanted, live)[-1]
    assert (whole.kind, whole.subject) == ("different", wanted.exchange("sales"))
    assert whole.share == pytest.approx(2 / 3)
    assert [side.destinations for side in (whole.before, whole.after) if isinstance(side, SuperStream)] == [
        ("sales-a", "sales-b"),
        ("sales-a", "sales-b", "sales-c"),
    ]
