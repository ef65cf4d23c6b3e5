"""A problem says its place, its value, the rule and the remedy, and an error lists all of them."""

from __future__ import annotations

import pickle

from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.topology.fields import file_finding, shown_value, similar

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


def test_an_error_without_a_file_says_what_it_is_about() -> None:
    assert str(TopologyError([TWO])).startswith("the topology has a mistake:\n")


def test_values_are_shown_as_toml_writes_them_and_cut() -> None:
    assert shown_value({"a": [1, True, "é\n"], "b": {}}) == '{ a = [1, true, "é\\n"], b = {} }'
    assert shown_value("x" * 100) == '"' + "x" * 59 + "..."
    assert shown_value(1 << 5000) == "a number of 5001 bits"
    assert len(shown_value(list(range(10_000)))) == 63


def test_a_word_that_is_close_is_found() -> None:
    words = ("routing_key", "queue", "Durable")
    assert [similar(word, words) for word in ("routing-key", "quque", "DURABLE", "xyz")] == [
        "routing_key", "queue", "Durable", None,
    ]  # fmt: skip
