"""A notebook shows key maps, plans and comparisons as `-o html` does, without an import."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from few_seeds import few_seeds
from IPython.core.formatters import HTMLFormatter
from plan_scenarios import SCENARIOS

from rabbit_chx import ExchangeRef, HashRing, ModulusHashExchange, SlotTable, SuperStream
from rabbit_chx.analysis import movement, simulate
from rabbit_chx.rendering import output
from rabbit_chx.routing import jump
from rabbit_chx.topology import plan

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("<q3>", 3)])
AFTER = RING.unbind("q1")
SLOTS = [ExchangeRef(f"e.slot.{n}") for n in range(6)]
TABLE = SlotTable(HashRing.from_buckets(SLOTS), {slot: f"e.{n % 2}" for n, slot in enumerate(SLOTS[:5])})
MODULUS = ModulusHashExchange("m", (("a", "1"), ("b", "2"), ("a", "3")))


@pytest.fixture(autouse=True)
def _few_seeds() -> Iterator[None]:
    with few_seeds():
        yield
    jump.opened.clear()
    output.environment.cache_clear()


def shown(value: object) -> str | None:
    """What a notebook shows of it: the formatter is that of IPython."""
    found: str | None = HTMLFormatter()(value)
    return found


@pytest.mark.parametrize(
    ("value", "figures"),
    [
        (RING, ["strip", "bars"]),
        (HashRing.from_buckets([]), ["strip", "bars"]),
        (TABLE, ["strip", "bars"]),
        (MODULUS, ["strip", "bars"]),
        (SuperStream(["s-0", "s-1"]), ["strip", "bars"]),
        (movement(RING, AFTER), ["flows"]),
        (simulate(RING), ["strip", "bars"]),
        (simulate(RING, ["k1", "k2"], changed=AFTER), ["flows"]),
        (simulate(RING, ["k1", "k2"], changed=AFTER).change.messages, ["flows"]),  # type: ignore[union-attr]
    ],
)
def test_key_maps_and_comparisons_have_the_pictures_of_their_report(value: Any, figures: list[str]) -> None:
    text = shown(value)
    assert text is not None
    assert re.findall(r'<figure class="(\w+)">', text) == figures
    assert text.count("<svg") >= len(figures)
    assert "<q3>" not in text


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_plan_has_what_people_see_of_it_and_what_moves(name: str) -> None:
    made = plan(*SCENARIOS[name])
    text = shown(made)
    assert text is not None
    assert made.checksum in text
    moving = [
        change for change in made.rings.values() if change.is_ring and change.before.buckets and change.moved
    ]
    assert text.count('<figure class="flows">') == sum(change.matrix() is not None for change in moving)


def test_the_style_does_not_leave_the_part() -> None:
    text = shown(RING)
    assert text is not None
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = re.sub(r"/\*.*?\*/|^ .*?$|^@media.*?\{$", "", style, flags=re.DOTALL | re.MULTILINE)
    assert set(rules.split()) == {".rabbit-chx", "{", "}"}
    assert "<html" not in text


@pytest.mark.parametrize("value", [SuperStream(["s-0", "s-1"], routing="key")])
def test_a_value_without_a_report_is_shown_as_text(value: object) -> None:
    assert shown(value) is None


def test_without_jinja2_a_notebook_shows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    output.environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert shown(RING) is None
