"""What a broker would take and nobody meant is told."""

from __future__ import annotations

from rabbit_chx import Topology

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash_header = "tenant", alternate-exchange = "lost", mine = 1 }
ring = [{ queue = "ordres.{1..3}" }, { queue = "orders.9" }, { queue = "other" }, { exchange = "adit" }]
[[exchanges]]
name = "audit"
type = "Topic"
arguments = { hash-headers = "a", alternate_exchange = "b" }
[[exchanges]]
name = "delayed"
type = "x-delayed-message"
[[queues]]
name = "orders.{1..3}"
arguments = { message-ttl = 1, x-max-lenght = 5, x-max-length-bytes = 7, x-mine = 2 }
"""


def test_what_was_probably_meant_is_said_once_for_each_name() -> None:
    said = Topology.from_toml(FILE.replace("orders.{1..3}", "orders.1", 1)).misspellings
    assert "exchange audit is of type Topic: did you mean topic?" in said
    assert (
        "exchange orders has the argument hash_header, which RabbitMQ ignores: did you mean hash-header?"
        in said
    )
    assert (
        "exchange audit has the argument alternate_exchange, which RabbitMQ ignores: did you mean alternate-exchange?"
        in said
    )
    assert (
        "queue orders.1 has the argument message-ttl, which RabbitMQ ignores: did you mean x-message-ttl?"
        in said
    )
    assert (
        "queue orders.1 has the argument x-max-lenght, which RabbitMQ ignores: did you mean x-max-length?"
        in said
    )
    assert "exchange adit is not in the file: did you mean audit?" in said
    assert "queue ordres.1 is not in the file: did you mean orders.1?" in said
    assert len(said) == 7


def test_what_is_right_or_all_different_is_not_doubted() -> None:
    right = (
        FILE.replace("ordres", "orders")
        .replace("adit", "zzz")
        .replace("Topic", "topic")
        .replace("hash_header", "hash-header")
    )
    right = (
        right.replace("lenght", "length")
        .replace("message-ttl", "x-message-ttl")
        .replace("alternate_exchange", "alternate-exchange")
    )
    topology = Topology.from_toml(right.replace('hash-headers = "a", ', ""))
    assert topology.misspellings == ()
    assert [str(name) for name in topology.unlisted] == ["exchange zzz", "orders.9", "other"]


def test_a_thousand_names_are_compared_in_a_moment() -> None:
    members = ", ".join(f'{{ queue = "{n:x}{n * 7919:x}" }}' for n in range(2000))
    queues = "".join(f'[[queues]]\nname = "q{n * 104729:x}"\n' for n in range(2000))
    text = f'[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{members}]\n{queues}'
    assert len(Topology.from_toml(text).misspellings) <= 100
