"""What a change would move in a better way, its limit, and names that are read as something else; what is printed is in the transcripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx import Topology
from rabbit_chx.routing import HashRing

NAMED = """
[[exchanges]]
name = "%s"
type = "x-consistent-hash"
ring = [{ queue = "q1" }, { queue = "q2" }]
[[queues]]
name = "q{1..2}"
"""


def test_braces_of_names_are_refused_by_their_name(ran: Ran) -> None:
    code, _, errors = ran("compare", "b.{mad,nce}=1,c=1")
    assert (code, "'b.{mad,nce}=1': {mad,nce} is not a range of integers" in errors) == (2, True)


def test_compare_reports_when_less_is_possible(ran: Ran) -> None:
    _, out, _ = ran("compare", "q{0..11}=10", "--remove", "q4")
    (only,) = (line for line in out.splitlines() if line.startswith("or only"))
    ring = HashRing.from_bindings([(f"q{n}", 10) for n in range(12)])
    last_in_the_gap = HashRing.from_bindings([(f"q{n}", 10) for n in (0, 1, 2, 3, 11, *range(5, 11))])
    assert only == (
        f"or only  {ring.share_moved(last_in_the_gap):.3%} in the order that arrange writes; "
        f"{ring.shares()['q4']:.3%} with slots instead of the ring"
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("--allow", "moved=0.34"), 0),
        (("--allow", "moved=0.33"), 4),
        (("--allow", "moved=1", "--allow", "moved=0.3"), 4),
        (("--allow", "moved=0.34", "--keys", "user-{1..9}"), 4),
    ],
)
def test_a_question_that_is_answered_ends_with_0_unless_more_moves_than_a_limit(
    ran: Ran, words: tuple[str, ...], code: int
) -> None:
    """A third of all keys moves, and of these nine one more."""
    assert ran("compare", "q1=1,q2=1", "--add", "q3=1", *words)[0] == code


def test_without_an_order_only_what_is_bound_last_has_an_exact_share(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "ring.json").write_text(HashRing.unordered([("q1", 1), ("q2", 1)]).to_json())
    ring = str(tmp_path / "ring.json")
    code, out, _ = ran("compare", ring, "--add", "q3=1")
    assert (code, "moved   33.3" in out, "in every order" in out) == (0, True, True)
    assert ran("compare", ring, "--add", "q3=1", "--allow", "moved=0.1")[0] == 4
    code, out, _ = ran("compare", ring, "--remove", "q2", "--allow", "moved=0.1")
    assert (code, "moved   not determined" in out) == (3, True)
    code, out, _ = ran("compare", ring, "--add", "q1=2", "-o", "json")
    document = json.loads(out)
    assert (code, document["determined"], document["change"]["moved"]) == (0, True, 0), "4.3 ignores it"


def test_a_queue_that_is_bound_behind_the_only_one_moves_its_share(ran: Ran, tmp_path: Path) -> None:
    ring = tmp_path / "ring.json"
    ring.write_text(HashRing.unordered([("q1", 1)]).to_json())
    code, out, errors = ran("compare", str(ring), "--add", "q2=1")
    assert (code, "moved   49.991% of all keys (exact, in every order)" in out) == (0, True), errors
    ring.write_text(HashRing.unordered([("q1", 1), ("q1", 2)]).to_json())
    code, out, errors = ran("compare", str(ring), "--add", "q2=1")
    assert (code, "moved   not determined" in out, "not determined: the order of" in errors) == (
        3,
        True,
        True,
    )


NESTED = """
[[exchanges]]
name = "front"
type = "x-consistent-hash"
ring = [{ exchange = "behind" }, { queue = "last" }]
"""


def test_of_a_ring_with_others_behind_its_own_members_can_be_removed(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(NESTED + NAMED % "behind" + '[[queues]]\nname = "last"\n')
    for wrong in ("other", "q1"):
        code, _, errors = ran("compare", f"{tmp_path}/file.toml#front", "--remove", wrong)
        assert (code, errors.partition(": ")[2].strip()) == (
            2,
            f"{wrong} does not have a bucket: pass one of exchange:behind, last",
        )
    assert ran("compare", f"{tmp_path}/file.toml#front", "--remove", "exchange:behind")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("q1=1,q2=1", "--add", "b=5 c=5"),
        ("q1=1,q2=1", "--add", "b=5,c=5"),
        ("q1=1 q2=1",),
        ("q1=1,q2=1", "--remove", "q1=1;q2=1"),
    ],
)
def test_a_name_that_looks_like_two_values_is_refused(ran: Ran, words: tuple[str, ...]) -> None:
    code, _, errors = ran("compare", *words)
    assert (code, "looks like several bindings" in errors) == (2, True)


@pytest.mark.parametrize("name", ["/Events/Metrics", "a=b", "a=1", "a=1,b=2", "ring:a=1", "orders.json"])
@pytest.mark.parametrize(
    "words",
    [("route", "k"), ("compare",), ("check",), ("show",), ("export",), ("record",), ("repair", "--dry-run")],
)
def test_a_refused_ring_names_the_exchange_that_looks_like_it(
    ran: Ran, name: str, words: tuple[str, ...], modelled: ModelledCommands
) -> None:
    modelled.holds(live_of(Topology.from_toml(NAMED % name)))
    verb, *key = words
    code, _, errors = ran(*modelled.of_broker(verb, f"exchange:{name}", *key))
    assert code == 0, errors
    code, _, errors = ran(*modelled.of_broker(verb, name, *key))
    assert code == 0 or (code, f"is exchange:{name}" in errors) == (2, True)


def test_the_heaviest_keys_that_move_are_named_or_the_heaviest_stays(ran: Ran, tmp_path: Path) -> None:
    """Each is what two calls of `route` say; a key that is there once is not heavy."""
    ring, other = "q1=1,q2=1", "q1=1,q2=1,q3=1"
    _, out, _ = ran("route", ring, "--keys", "k{1..40}", "-o", "json")
    before = {row["key"]: row["destination"] for row in map(json.loads, out.splitlines())}
    _, out, _ = ran("route", other, "--keys", "k{1..40}", "-o", "json")
    after = {row["key"]: row["destination"] for row in map(json.loads, out.splitlines())}
    stays = next(key for key in before if before[key] == after[key])
    moves = next(key for key in before if before[key] != after[key])
    once = next(key for key in before if before[key] != after[key] and key != moves)
    sample = tmp_path / "keys.txt"
    sample.write_text("\n".join([*[stays] * 6, *[moves] * 3, once]))
    _, out, _ = ran("compare", ring, "--to", other, "--keys", str(sample))
    text = " ".join(out.split())
    assert f"heaviest '{stays}', 60.0% of the messages: stays in {before[stays]}" in text
    assert f"heavy '{moves}', 30.0% of the messages: moves from {before[moves]} to {after[moves]}" in text
    assert f"'{once}'" not in text
    sample.write_text(f"{moves}\n{moves}\n{stays}")
    _, out, _ = ran("compare", ring, "--to", other, "--keys", str(sample))
    assert f"heaviest '{moves}', 66.7% of the messages: moves from {before[moves]} to q3" in " ".join(
        out.split()
    )
