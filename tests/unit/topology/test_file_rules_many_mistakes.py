"""A file with many mistakes costs as much for each mistake as one with few. Calls are counted, because times vary."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError

FEW, MANY = 50, 400
BEGIN = '[[exchanges]]\nname = "o"\ntype = "x-consistent-hash"\n'
#: The n-th entry of a file with mistakes in each of them.
ENTRIES: dict[str, Callable[[int], str]] = {
    "type": lambda n: f'[[queues]]\nname = "q{n}"\ntype = "quorun"\n',
    "unknown field": lambda n: f'[[queues]]\nname = "q{n}"\nargumentz = {{}}\n',
    "unknown tables": lambda n: f'[unknown{n}]\nname = "q{n}"\n',
    "binding": lambda n: f'[[bindings]]\nsource = "x{n}"\nqueue = "q{n}"\nrouting_key = 5\n',
    "name": lambda n: f'[[queues]]\nname = "" # {n}\n',
    "twice": lambda n: f'[[queues]]\nname = "same" # {n}\n',
    "three": lambda n: f'[[queues]]\nname = "q{n}"\nowner = "nobody"\ntype = 5\ndurable = "x"\n',
    "pattern": lambda n: f'[[policies]]\nname = "p{n}"\npattern = "("\n',
    "variable": lambda n: f'[[queues]]\nname = "${{v{n}}}"\n',
    "members as tables": lambda n: BEGIN * (n == 0) + f'[[exchanges.ring]]\nqueue = "q{n}"\nweight = 0\n',
    "ring": lambda n: (
        f'[[exchanges]]\nname = "x{n}"\ntype = "x-consistent-hash"\n'
        f'ring = [{{ queue = "q{n}", weight = 1 }}, {{ queue = "q{n}", weight = 1 }}]\n'
    ),
}
#: What is between the members of one ring.
BETWEEN = {"members in a line": ", ", "members on lines": ",\n  "}


def mistakes_and_calls(text: str) -> tuple[int, int]:
    """Return the number of mistakes in a file, and that of the function calls until they are shown."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with pytest.raises(TopologyError) as caught:
            Topology.from_toml(text)
        shown = str(caught.value)
    finally:
        sys.setprofile(None)
    assert shown
    return len(caught.value.problems), calls


@pytest.mark.parametrize("kind", [*ENTRIES, *BETWEEN])
def test_many_mistakes_cost_as_much_each_as_few(kind: str) -> None:
    def text_of(count: int) -> str:
        if kind in ENTRIES:
            return "".join(map(ENTRIES[kind], range(count)))
        members = BETWEEN[kind].join(f'{{ queue = "q{n}", weight = 0 }}' for n in range(count))
        return f"{BEGIN}ring = [\n  {members}\n]\n"

    few, calls_of_few = mistakes_and_calls(text_of(FEW))
    many, calls_of_many = mistakes_and_calls(text_of(MANY))
    assert few >= FEW - 1
    assert calls_of_many / many < 1.5 * calls_of_few / few
