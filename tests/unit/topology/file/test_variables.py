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

FILE = """
max_share_moved = "${share}"
[variables]
env = "dev"
count = 2
weight = 10
durable = true
share = 0.5
prefix = "${env}.orders"

[[exchanges]]
name = "${prefix}"
type = "x-consistent-hash"
ring = [{ queue = "${prefix}.{1..${count}}", weight = "${weight}" }]

[[queues]]
name = "${prefix}.{1..${count}}"
type = "classic"
durable = "${durable}"
arguments = { x-max-length = "${weight}", x-dead-letter-exchange = "a${weight}${durable}$${env}" }
"""


def written(env: str, count: int, weight: int, durable: str, share: float) -> str:
    """Return the file with values in the place of the variables."""
    return f"""
max_share_moved = {share}
[[exchanges]]
name = "{env}.orders"
type = "x-consistent-hash"
ring = [{{ queue = "{env}.orders.{{1..{count}}}", weight = {weight} }}]

[[queues]]
name = "{env}.orders.{{1..{count}}}"
type = "classic"
durable = {durable}
arguments = {{ x-max-length = {weight}, x-dead-letter-exchange = "a{weight}{durable}$${{env}}" }}
"""


def problems(text: str, **variables: Any) -> list[str]:
    """Return the mistakes of a file, each with its line."""
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(text, variables=variables)
    return [f"{problem.line}: {problem.subject}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("variables", "values"),
    [
        ({}, ("dev", 2, 10, "true", 0.5)),
        ({"env": "prod", "count": 4, "weight": 3, "durable": False, "share": 1}, ("prod", 4, 3, "false", 1)),
        ({"env": "7", "count": "4", "weight": "3", "durable": "false", "share": "0.25"}, ("7", 4, 3, "false", 0.25)),
    ],
)  # fmt: skip
def test_a_file_with_variables_is_the_file_with_their_values(
    variables: dict[str, Any], values: tuple[Any, ...]
) -> None:
    assert Topology.from_toml(FILE, variables=variables) == Topology.from_toml(written(*values))
    assert Draft7Validator(json.loads(topology_schema())).is_valid(tomllib.loads(FILE))


def test_a_variable_of_a_replaced_default_is_used() -> None:
    text = '[variables]\nenv = "dev"\nprefix = "${env}.q"\n[[queues]]\nname = "${prefix}"\n'
    assert Topology.from_toml(text).queues[0].name == "dev.q"
    assert Topology.from_toml(text, variables={"prefix": "x"}).queues[0].name == "x"


QUEUES = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n'
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


@pytest.mark.parametrize(("value", "durable"), [("true", True), (True, True), ("false", False)])
def test_a_given_value_without_a_default_has_the_type_that_it_looks_like(
    value: Any, *, durable: bool
) -> None:
    text = '[[queues]]\nname = "q"\ndurable = "${a}"\n'
    assert Topology.from_toml(text, variables={"a": value}).queues[0].durable is durable
    assert Topology.from_toml('[[queues]]\nname = "q${a}"\n', variables={"a": "007"}).queues[0].name == "q007"


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


def test_names_in_a_table_have_variables() -> None:
    text = '[[bindings]]\nsource = "h"\nqueue = "q"\narguments = { "x-${env}" = "${env}", "$${env}" = 1 }\n'
    (binding,) = Topology.from_toml(text, variables={"env": "prod"}).bindings
    assert binding.arguments == {"x-prod": "prod", "${env}": 1}
    topology = Topology(bindings=(binding,))
    assert Topology.from_toml(topology.to_toml()) == topology


@pytest.mark.parametrize("variables", [{1: 2}, [("a", 1)], "a=1", 5])
def test_variables_are_a_mapping_of_names(variables: Any) -> None:
    with pytest.raises(InputError, match=r"variables is .*: pass a dict of names and values"):
        Topology.from_toml(QUEUE, variables=variables)


@pytest.mark.parametrize(
    "text",
    [
        '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nslots = 4\nmembers = [{ queue = "q", slots = ["0..${a}"] }]',
        '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "q", weight = "1${a}" }]',
        '[[exchanges]]\nname = "x"\ntype = "x-${b}-hash"\nring = [{ queue = "q${a}" }]',
        '[[queues]]\nname = "q${a}"\ntype = "quor${c}"',
        '[[queues]]\nname = "q${a}"\nowner = "${d}nal"',
    ],
)
def test_the_schema_permits_variables_within_a_text(text: str) -> None:
    names = {
        name: value
        for name, value in {"a": "3", "b": "consistent", "c": "um", "d": "exter"}.items()
        if f"${{{name}}}" in text
    }
    Topology.from_toml(text, variables=names)
    schema = Draft7Validator(json.loads(topology_schema()))
    assert schema.is_valid(tomllib.loads(text))


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


def test_a_ring_with_variables_is_not_rearranged() -> None:
    topology = Topology.from_toml(FILE)
    ring = topology.exchanges[0].ring or ()
    done = rearrange(FILE, {"dev.orders": ring[::-1]}, {})
    assert (done.text, done.unwritten) == (FILE, ("dev.orders",))
    plain = FILE.replace('weight = "${weight}"', "weight = 10").replace(
        '${prefix}.{1..${count}}"', 'dev.orders.{1..2}"', 1
    )
    done = rearrange(
        plain.replace("weight = 10\ndurable", "weight = 11\ndurable"),
        {"dev.orders": ring[::-1]},
        {"weight": 11},
    )
    assert '{ queue = "dev.orders.2", weight = 10 }, { queue = "dev.orders.1", weight = 10 }' in done.text


LISTS = """
[variables]
order = ["orders.2", "orders.${env}"]
weights = [3, 1]
env = "eu"
ring = [{ queue = "orders.2", weight = 3 }, { queue = "orders.eu" }]

[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = %s

[[queues]]
name = "${order}"

[[policies]]
name = "p"
pattern = "^${order:regex}$"
apply_to = "queues"
definition = { max-length = "${limit}" }
"""


@pytest.mark.parametrize("ring", ['"${ring}"', '[{ queue = "${order}", weight = "${weights}" }]'])
def test_a_list_is_a_ring_or_a_value_for_each_entry(ring: str) -> None:
    text = LISTS % ring
    unused = {
        "weights": "weights = [3, 1]\n",
        "ring": 'ring = [{ queue = "orders.2", weight = 3 }, { queue = "orders.eu" }]\n',
    }
    for name, line in unused.items():
        text = text if f"${{{name}}}" in text else text.replace(line, "")
    topology = Topology.from_toml(text, variables={"limit": 5})
    assert [(member.destination, member.key) for member in topology.exchanges[0].ring or ()] == [
        ("orders.2", "3"),
        ("orders.eu", "1"),
    ]
    assert [queue.name for queue in topology.queues] == ["orders.2", "orders.eu"]
    assert topology.policies[0].pattern == r"^(orders\.2|orders\.eu)$"
    given = Topology.from_toml(text, variables={"limit": 5, "order": ["a", "b.c"]})
    assert [queue.name for queue in given.queues] == ["a", "b.c"]
    assert Draft7Validator(json.loads(topology_schema())).is_valid(tomllib.loads(text))


def test_a_list_of_names_is_a_ring_of_equal_weights() -> None:
    text = '[variables]\norder = ["b", "a"]\n' + QUEUES + 'ring = "${order}"\n[[queues]]\nname = "${order}"\n'
    topology = Topology.from_toml(text)
    assert [(member.destination, member.key) for member in topology.exchanges[0].ring or ()] == [
        ("b", "1"),
        ("a", "1"),
    ]
    assert [queue.name for queue in topology.queues] == ["a", "b"]
    modulus = text.replace("x-consistent-hash", "x-modulus-hash").replace("ring =", "queues =")
    assert [binding.destination for binding in Topology.from_toml(modulus).bindings] == ["a", "b"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20))
def test_a_name_as_a_pattern_matches_only_this_name(name: str) -> None:
    text = '[variables]\na = ""\n[[policies]]\nname = "p"\npattern = "^${a:regex}$"\ndefinition = { max-length = 1 }\n'
    (policy,) = Topology.from_toml(text, variables={"a": name}).policies
    assert re.fullmatch(policy.pattern, name)
    assert not re.fullmatch(policy.pattern, f"{name}x")
    assert not re.fullmatch(policy.pattern, re.sub(r"[^a-z]", "a", name) + "b")
