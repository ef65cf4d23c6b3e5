"""Rings in another order, in the text of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random  # hypothesis reads annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import topologies

from rabbit_chx import Topology
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.file.toml_file import rearrange

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


def ordered(text: str, order: Sequence[int], *, comment: bool = False) -> str:
    """Return the text with the members of `orders` in the order of these numbers."""
    ring = members(text)
    done = rearrange(text, {"orders": [ring[n] for n in order]})
    assert (done.unwritten, done.uncommented) == ((), ("orders",) if comment else ())
    assert members(done.text) == tuple(ring[n] for n in order)
    return done.text


A, B = '{ queue = "a", weight = 1 }', '{ queue = "b", weight = 1 }'


@pytest.mark.parametrize(
    ("ring", "order", "then"),
    [
        ('{ queue = "a" }, {queue="b",weight=2}', [1, 0], f'{{ queue = "b", weight = 2 }}, {A}'),
        ('\n  { queue = "a" },\n  { queue = "b" },\n', [1, 0], f"{B}, {A}"),
        ('\r\n  { queue = "a" },\r\n  { queue = "b" }\r\n', [1, 0], f"{B}, {A}"),
        ('{ queue = "q{1..3}" }, { queue = "a" }', [3, 0, 1, 2], f'{A}, {{ queue = "q{{1..3}}", weight = 1 }}'),
        (
            '{ queue = "q{1..4}" }',
            [3, 1, 2, 0],
            '{ queue = "q4", weight = 1 }, { queue = "q{2..3}", weight = 1 }, { queue = "q1", weight = 1 }',
        ),
        ('{ queue = "a,]#" }, { queue = "b\\"}" }', [1, 0], '{ queue = "b\\"}", weight = 1 }, { queue = "a,]#", weight = 1 }'),
        (
            '{ queue = "a", arguments = { ring = [[1], "]"] } }, { queue = "b" }',
            [1, 0],
            f'{B}, {{ queue = "a", weight = 1, arguments = {{ ring = [[1], "]"] }} }}',
        ),
    ],
)  # fmt: skip
def test_only_the_ring_is_another(ring: str, order: list[int], then: str) -> None:
    assert ordered(FILE.format(ring), order) == FILE.format(then)


def test_a_long_ring_has_a_line_for_each_member() -> None:
    ring = ", ".join(f'{{ queue = "{letter * 30}" }}' for letter in "abc")
    lines = "".join(f'    {{ queue = "{letter * 30}", weight = 1 }},\r\n' for letter in "cab")
    text = FILE.replace("\n", "\r\n")
    assert ordered(text.format(ring), [2, 0, 1]) == text.format(f"\r\n{lines}")


def test_comments_within_a_ring_are_missed() -> None:
    for ring in (
        '\n  { queue = "a" }, # of all\n  { queue = "b" },\n',
        '\n  # the first\n  { queue = "a" },\n  { queue = "b" },\n',
        '{ queue = "a" }, { queue = "b" } # [\n',
    ):
        assert ordered(FILE.format(ring), [1, 0], comment=True) == FILE.format(f"{B}, {A}")


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
    assert ordered(text.replace("?", '{queue="a"}, {queue="b"}'), [1, 0]) == text.replace("?", f"{B}, {A}")


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
