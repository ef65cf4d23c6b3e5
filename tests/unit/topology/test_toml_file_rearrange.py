"""Rings in another order, in the text of a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random  # hypothesis reads annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import topologies

from rabbit_chx import Topology
from rabbit_chx.errors import MissingExtraError
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.toml_file import rearrange

FILE = """# what sells
max_share_moved = 0.2   # of all

[[exchanges]]
name = 'orders'
type = "x-consistent-hash"
ring = [{}]  # in bind order
arguments = {{ note = \"\"\"ring = ["not this"]\"\"\" }}

[[queues]]
name = "q{{1..9}}"
"""


def members(text: str, exchange: str = "orders") -> tuple[RingMember, ...]:
    found = Topology.from_toml(text).exchange(exchange)
    assert found is not None
    return found.ring or ()


def ordered(text: str, order: Sequence[int]) -> str:
    """Return the text with the members of `orders` in the order of these numbers."""
    ring = members(text)
    done = rearrange(text, {"orders": [ring[n] for n in order]})
    assert done.unwritten == ()
    assert members(done.text) == tuple(ring[n] for n in order)
    return done.text


A, B = '{queue="a"}', '{ queue = "b", weight = 1 }'


@pytest.mark.parametrize(
    ("ring", "order", "then"),
    [
        (f"{A}, {B}", [1, 0], f"{B}, {A}"),
        (f"{A},\n  {B}", [1, 0], f"\n  {B},\n    {A},\n"),
        (f"\n  {A},\n  {B},\n", [1, 0], f"\n  {B},\n  {A},\n"),
        (f"\r\n\t{A},\r\n\t{B}\r\n", [1, 0], f"\r\n\t{B},\r\n\t{A},\r\n"),
        ('{ queue = "q{1..3}" }, { queue = "a" }', [3, 0, 1, 2], '{ queue = "a" }, { queue = "q{1..3}" }'),
        (
            '{ queue = "q{1..4}" }',
            [3, 1, 2, 0],
            '{ queue = "q4", weight = 1 }, { queue = "q{2..3}", weight = 1 }, { queue = "q1", weight = 1 }',
        ),
        ('{ queue = "a,]#" }, { queue = "b\\"}" }', [1, 0], '{ queue = "b\\"}" }, { queue = "a,]#" }'),
        (
            '{ queue = "a", arguments = { ring = [[1], "]"] } }, { queue = "b" }',
            [1, 0],
            '{ queue = "b" }, { queue = "a", arguments = { ring = [[1], "]"] } }',
        ),
    ],
)  # fmt: skip
def test_only_the_ring_is_another(ring: str, order: list[int], then: str) -> None:
    assert ordered(FILE.format(ring), order) == FILE.format(then)


def test_a_long_ring_has_a_line_for_each_member() -> None:
    texts = [f'{{ queue = "{letter * 30}" }}' for letter in "abc"]
    lines = "".join(f"    {texts[n]},\r\n" for n in (2, 0, 1))
    text = FILE.replace("\n", "\r\n")
    long = text.format(", ".join(texts))
    assert ordered(long, [2, 0, 1]) == text.format(f"\r\n{lines}")


@pytest.mark.parametrize(
    ("ring", "order", "then"),
    [
        (f"\n  {A}, # of all, [\n  {B},\n", [1, 0], f"\n  {B},\n  {A}, # of all, [\n"),
        (f"\n  # the first\n  {A},\n\n  {B} # two\n  # the end\n", [1, 0], f"\n\n  {B}, # two\n  # the first\n  {A},\n  # the end\n"),
        (f"{A}, {B} # [\n", [1, 0], f"\n    {B}, # [\n    {A},\n"),
        (
            f'\n  # three\n  {{ queue = "q{{1..3}}" }}, # all\n  {A}, # one\n',
            [2, 3, 0, 1],
            f'\n  # three\n  {{ queue = "q3", weight = 1 }}, # all\n  {A}, # one\n    {{ queue = "q{{1..2}}", weight = 1 }},\n',
        ),
    ],
)  # fmt: skip
def test_comments_stay_with_their_members(ring: str, order: list[int], then: str) -> None:
    assert ordered(FILE.format(ring), order) == FILE.format(then)


def test_exchanges_between_queues_stay_where_they_are() -> None:
    text = f"{FILE.format(f'{A}, {B}')}\n[[exchanges]]\nname = 'other'\n\n[[queues]]\nname = 'b'\n"
    assert ordered(text, [1, 0]) == text.replace(f"{A}, {B}", f"{B}, {A}")


@pytest.mark.parametrize(
    "text",
    [
        FILE.format(f"\n  {A}\n  , {B}\n"),
        FILE.replace('note = """ring', 'note = """\n[[exchanges]]\nring').format(f"{A}, {B}"),
        '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\n[[exchanges.ring]]\nqueue = "a"\n[[exchanges.ring]]\nqueue = "b"\n',
    ],
)
def test_what_cannot_be_edited_is_left(text: str) -> None:
    a, b = members(text)
    done = rearrange(text, {"orders": [b, a]})
    assert (done.text, done.unwritten) == (text, ("orders",))


def test_without_tomlkit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(MissingExtraError, match=r"another order in the text of a file needs tomlkit"):
        ordered(FILE.format(f"{A}, {B}"), [1, 0])


def test_the_same_order_leaves_the_text_as_it_is() -> None:
    text = FILE.format('{ queue = "a" } ,{ queue = "b" }')
    assert ordered(text, [0, 1]) == text
    assert rearrange(text, {}).text == text


@pytest.mark.parametrize(
    "text",
    [
        'exchanges = [{ name = "orders", type = "x-consistent-hash", ring = [?] }]',
        '"exchanges" = [{ "name" = "orders", type = "x-consistent-hash", \'ring\' = [?] }]\n',
        '\ufeff[["exchanges"]]\nname = "orders"\n\'ring\' = [?]\ntype = "x-consistent-hash"',
        '[[ exchanges ]]\nname="other"\n[exchanges.arguments]\nring=[1]\n[[exchanges]]\nring=[?]\nname="orders"\ntype="x-consistent-hash"',
        '# ring = [\n[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\narguments = { x-ring = [2], note = \'ring = [\' }\nring = [?]',
    ],
)  # fmt: skip
def test_a_ring_is_found_however_the_file_is_written(text: str) -> None:
    assert ordered(text.replace("?", f"{A}, {B}"), [1, 0]) == text.replace("?", f"{B}, {A}")


def test_an_entry_of_several_exchanges_has_one_order() -> None:
    text = '[[exchanges]]\nname = "x{1..2}"\ntype = "x-consistent-hash"\nring = [{ queue = "a" }, { queue = "b" }]\n'
    a, b = members(text, "x1")
    both = rearrange(text, {"x1": [b, a], "x2": [b, a]})
    assert (members(both.text, "x1"), members(both.text, "x2")) == ((b, a), (b, a))
    kept = rearrange(text, {"x1": [b, a]})
    assert (kept.text, kept.unwritten) == (text, ("x1",))


@pytest.mark.extended
@given(topologies(), st.randoms(use_true_random=False))
def test_only_the_order_of_the_rings_of_a_file_changes(topology: Topology, random: Random) -> None:
    rings = {exchange.name: exchange.ring for exchange in topology.exchanges if exchange.ring is not None}
    orders = {name: random.sample(ring, len(ring)) for name, ring in rings.items()}
    done = rearrange(topology.to_toml(), orders)
    written = {name: tuple(orders[name]) for name in orders.keys() - done.unwritten}
    exchanges = (replace(one, ring=written.get(one.name, one.ring)) for one in topology.exchanges)
    assert Topology.from_toml(done.text) == replace(topology, exchanges=tuple(exchanges))


def test_the_slots_of_members_are_written_in_the_place_of_their_weights() -> None:
    text = (
        '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nslots = 6\n'
        'members = [{ queue = "q{1..2}", weight = 1 }]  # by weight\n'
        + FILE.format('{ queue = "a" }, { queue = "b" }')
    )
    pins = (RingMember("q1", slots=(0, 1, 2)), RingMember("q2", slots=(3, 4, 5)))
    done = rearrange(text, {"events": pins})
    lists = '[{ queue = "q1", slots = ["00..02"] }, { queue = "q2", slots = ["03..05"] }]'
    assert done.text == text.replace('[{ queue = "q{1..2}", weight = 1 }]', lists)
    assert rearrange(done.text, {"events": pins}).text == done.text
