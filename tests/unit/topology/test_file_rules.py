"""Each mistake of a topology file is one problem with its place, its rule and its remedy."""

from __future__ import annotations

import pickle

import pytest
from stored_files import STORED_FILES, judge_file
from topologies import problems_in

from rabbit_chx import Topology
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.topology.argument_table import show_value
from rabbit_chx.topology.file_rules import file_finding
from rabbit_chx.topology.toml_file import parse

HASH = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n'


@pytest.mark.parametrize("text", STORED_FILES, ids=STORED_FILES.values())
def test_each_mistake_of_a_file_is_one_problem_with_its_line(text: str) -> None:
    assert judge_file(text) == STORED_FILES[text]


def test_unlisted_destinations_are_external() -> None:
    text = f'{HASH}ring = [{{ queue = "theirs" }}, {{ exchange = "x" }}, {{ exchange = "zzz" }}]\n'
    topology = Topology.from_toml(f'{text}[[bindings]]\nsource = "amq.topic"\nqueue = "q.10"\n')
    assert tuple(map(str, topology.unlisted)) == ("exchange zzz", "q.10", "theirs")


def test_a_policy_that_shards_a_hash_exchange_replaces_its_ring() -> None:
    policy = '[[policies]]\nname = "p"\npattern = "^x"\napply_to = "exchanges"\ndefinition = { shards-per-node = 2, routing-key = "1" }\n'
    sharded = Topology.from_toml(HASH + policy)
    assert sharded.exchanges[0].ring is None
    assert Topology.from_toml(sharded.to_toml()) == sharded
    for other in (
        policy.replace("^x", "^y"),
        policy.replace('shards-per-node = 2, routing-key = "1"', "max-length = 2"),
    ):
        (problem,) = problems_in(HASH + other)
        assert "exchanges[0].ring: an exchange of type x-consistent-hash needs its members" in str(problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = x", "t.toml has a mistake:\n  line 2, the text: invalid TOML: Invalid value in `b = x`; write strings in q"),
        ("a = 1\n\na = 2", "line 3, the text: invalid TOML: Cannot overwrite a value in `a = 2`; .* each key once"),
        ("my/topology.toml", "in `my/topology.toml`; this is the name of a file: read it with Topology.from_file"),
        ('{"queues": []}', 'in `{"queues": \\[\\]}`; this is JSON: read a definitions file with Topology.from_definitions'),
        ("a = ", "line 1, the text: invalid TOML: Invalid value in `a =`"),
        (f"a = {'[' * 5000}", "invalid TOML|nested too deeply"),
    ],
)  # fmt: skip
def test_invalid_toml_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        parse(text, "t.toml")
    assert (caught.value.file, len(caught.value.problems)) == ("t.toml", 1)


ONE = file_finding("queues[0].type", "quroum", "a queue's type is classic", 'write "classic"', 7)
TWO = file_finding("queues[1].name", None, "a queue needs `name`", "write name = ...")


def test_an_error_lists_every_problem() -> None:
    error = TopologyError([ONE, TWO], file="orders.toml")
    assert str(error) == (
        "orders.toml has 2 mistakes:\n"
        '  line 7, queues[0].type = "quroum": a queue\'s type is classic; write "classic"\n'
        "  queues[1].name: a queue needs `name`; write name = ..."
    )
    assert (error.problems, error.file) == ((ONE, TWO), "orders.toml")
    assert isinstance(error, InputError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (again.problems, str(again)) == (error.problems, str(error))
    assert isinstance(again, TopologyError)
    assert str(TopologyError([TWO])).startswith("the topology has a mistake:\n")


def test_values_are_shown_as_toml_and_shortened() -> None:
    assert show_value({"a": [1, True, "é\n"], "b": {}}) == '{ a = [1, true, "é\\n"], b = {} }'
    assert show_value("x" * 100) == '"' + "x" * 59 + "..."
    assert show_value("\ud800") == '"?"'
    assert show_value(1 << 5000) == "a number of 5001 bits"
    assert len(show_value(list(range(10_000)))) == 63


def test_a_thousand_names_are_compared_in_a_moment() -> None:
    """At most a hundred unknown names are compared with the listed ones."""
    members = ", ".join(f'{{ queue = "{n:x}{n * 7919:x}" }}' for n in range(2000))
    queues = "".join(f'[[queues]]\nname = "q{n * 104729:x}"\n' for n in range(2000))
    text = f'[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{members}]\n{queues}'
    assert len(Topology.from_toml(text).misspellings) <= 100


def test_without_a_release_only_what_all_releases_ignore_is_named() -> None:
    for argument, count in (("x-ttl = 1", 1), ("x-consumer-timeout = 5", 0)):
        text = f'[[queues]]\nname = "q"\ntype = "quorum"\narguments = {{ {argument} }}\n'
        assert len(Topology.from_toml(text).ignored_arguments()) == count
