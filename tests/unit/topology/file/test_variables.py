"""Variables of a topology file: a file with variables is the file with their values written in it."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from topology_schema import topology_schema

from rabbit_chx import InputError, Topology, TopologyError
from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.file.toml_file import rearrange


def problems(text: str, **variables: Any) -> list[str]:
    """Return the mistakes of a file, each with its line."""
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(text, variables=variables)
    return [f"{problem.line}: {problem.subject}: {problem.message}" for problem in caught.value.problems]


FILE = """
[variables]
count = 2
weight = 10
prefix = "q"
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "${prefix}.{1..${count}}", weight = "${weight}" }]
[[queues]]
name = "q"
arguments = { x-max-length = "${weight}" }
"""
QUEUE = '[[queues]]\nname = "${a}"\n'


@pytest.mark.parametrize(
    ("text", "variables", "found"),
    [
        (f"[variables]\na = 0x{'f' * 5000}\n{QUEUE}", {}, "2: variables.a = a number of 20000 bits: the number is not finite, or has more than 64 bits"),
        (f"[variables]\na = 1.5\n{QUEUE}", {"a": 10**400}, "2: variables.a: the given value a number of 1329 bits is not finite, or has more than 64 bits"),
    ],
)  # fmt: skip
def test_a_huge_number_is_reported_with_its_length(text: str, variables: dict[str, Any], found: str) -> None:
    assert problems(text, **variables) == [found]


def test_a_chain_of_variables_has_an_end() -> None:
    def chain(length: int, reference: str) -> str:
        names = "".join(f'a{n} = "{reference.format(n + 1)}"\n' for n in range(length))
        return (
            f'[variables]\n{names}a{length} = "xx"\n[[queues]]\nname = "q"\narguments = {{ x = "${{a0}}" }}\n'
        )

    assert Topology.from_toml(chain(99, "${{a{0}}}")).queues[0].arguments == {"x": "xx"}
    assert problems(chain(3000, "${{a{0}}}"))[0] == (
        "102: variables.a100: more than 100 variables refer to each other, up to this one"
    )
    assert "the text has 131,072 characters" in problems(chain(60, "${{a{0}}}${{a{0}}}"))[0]


@pytest.mark.parametrize("variables", [{1: 2}, [("a", 1)], "a=1", 5])
def test_variables_are_a_mapping_of_names(variables: Any) -> None:
    with pytest.raises(InputError, match=r"variables is .*: pass a dict of names and values"):
        Topology.from_toml(QUEUE, variables=variables)


def test_the_schema_refuses_an_escaped_reference_and_a_bad_name() -> None:
    schema = Draft7Validator(json.loads(topology_schema()))
    for text in ('[[queues]]\nname = "q"\ntype = "$${c}"', '[variables]\n"a b" = 1\n[[queues]]\nname = "q"'):
        assert not schema.is_valid(tomllib.loads(text))


_names = st.lists(
    st.sampled_from(["$", "{", "}", "a", "1", "..", "-", " ", ":", "$${", "${a}", "${ a }", "${1..2}"]),
    min_size=1,
    max_size=8,
)


@given(_names.map("".join))
def test_a_text_that_looks_like_a_reference_survives_a_file(name: str) -> None:
    topology = Topology(
        queues=(
            QueueDefinition(f"q{name}", "classic", arguments={"x-dead-letter-exchange": name, name: name}),
        )
    )
    assert Topology.from_toml(topology.to_toml()) == topology


def test_the_entries_of_a_ring_keep_their_variables_unless_the_order_divides_them() -> None:
    ring = Topology.from_toml(FILE).exchanges[0].ring or ()
    done = rearrange(FILE, {"x": ring[::-1]}, {})
    assert (done.text, done.unwritten) == (FILE, ("x",))
    entry = '{ queue = "${prefix}.{1..${count}}", weight = "${weight}" }'
    more = FILE.replace(entry, f'{entry}, {{ queue = "last" }}')
    ring = Topology.from_toml(more).exchanges[0].ring or ()
    done = rearrange(more, {"x": [ring[-1], *ring[:-1]]}, {})
    assert done.text == more.replace(f'{entry}, {{ queue = "last" }}', f'{{ queue = "last" }}, {entry}')
    assert done.unwritten == ()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20))
def test_a_name_as_a_pattern_matches_only_this_name(name: str) -> None:
    text = '[variables]\na = ""\n[[policies]]\nname = "p"\npattern = "^${a:regex}$"\ndefinition = { max-length = 1 }\n'
    (policy,) = Topology.from_toml(text, variables={"a": name}).policies
    assert re.fullmatch(policy.pattern, name)
    assert not re.fullmatch(policy.pattern, f"{name}x")
    assert not re.fullmatch(policy.pattern, re.sub(r"[^a-z]", "a", name) + "b")
