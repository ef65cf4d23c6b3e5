"""Dead-letter exchanges and alternate exchanges that do not exist, or have no binding: a table of files, and what is found in each."""

from __future__ import annotations

import pytest

from rabbit_chx import Topology
from rabbit_chx.analysis import Finding
from rabbit_chx.checking.check_rings import DeadLetters
from rabbit_chx.topology import LiveTopology, check

RING = """
[[exchanges]]
name = "work"
type = "x-consistent-hash"
ring = [{ queue = "work.{1..2}" }]
"""
QUEUES = '[[queues]]\nname = "work.{{1..2}}"\n{}\n'
DEAD = '[[queues]]\nname = "dead"\n'


def letters(arguments: str, rest: str = "", ring: str = RING) -> str:
    return ring + QUEUES.format(f"arguments = {{ {arguments} }}") + rest


def exchange(name: str, type_: str, more: str = "") -> str:
    return f'[[exchanges]]\nname = "{name}"\ntype = "{type_}"\n{more}\n'


def bound(source: str, queue: str, key: str = "") -> str:
    return f'[[bindings]]\nsource = "{source}"\nqueue = "{queue}"\nrouting_key = "{key}"\n'


def queue(name: str, arguments: str, type_: str = "classic") -> str:
    return f'[[queues]]\nname = "{name}"\ntype = "{type_}"\narguments = {{ {arguments} }}\n'


def policy(definition: str, pattern: str = "^work", apply_to: str = "queues") -> str:
    return f'[[policies]]\nname = "p"\npattern = "{pattern}"\napply_to = "{apply_to}"\ndefinition = {{ {definition} }}\n'


DLX = 'x-dead-letter-exchange = "dlx"'
SLOTS = RING.replace("ring =", "slots = 4\nmembers =")
MODULUS = '[[exchanges]]\nname = "work"\ntype = "x-modulus-hash"\nqueues = ["work.{1..2}"]\n'

#: A file, the names of what is found, and a part of the message.
LOST: dict[str, tuple[str, str, str]] = {
    "a typo": (letters(DLX, exchange("dlxx", "fanout")), "work.1 work.2", "which the file does not have (did you mean dlxx?)"),
    "a typo, of slots": (letters(DLX, exchange("dlxx", "fanout"), SLOTS), "work.1 work.2", "which the file does not have"),
    "a typo, of a modulus": (letters(DLX, ring=MODULUS), "work.1 work.2", "which the file does not have"),
    "a typo by a policy": (RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"'), "work.1 work.2", "dlx by the policy p, which the file does not have"),
    "nothing bound": (letters(DLX, exchange("dlx", "fanout")), "work.1 work.2", "which has no binding"),
    "at-least-once": (RING + '[[queues]]\nname = "work.{1..2}"\ntype = "quorum"\narguments = { x-dead-letter-exchange = "dlx", x-overflow = "reject-publish", x-dead-letter-strategy = "at-least-once" }\n', "work.1 work.2", "or stay in it if its overflow is reject-publish"),
    "an alternate exchange": (RING.replace("ring =", 'arguments = { alternate-exchange = "aee" }\nring =') + QUEUES.format("") + exchange("ae", "fanout"), "work", "aee, which the file does not have (did you mean ae?)"),
    "an alternate exchange by a policy": (RING + QUEUES.format("") + policy('alternate-exchange = "aee"', "^work$", "exchanges"), "work", "which the file does not have"),
    "an alternate exchange without a queue": (RING.replace("ring =", 'arguments = { alternate-exchange = "ae" }\nring =') + QUEUES.format("") + exchange("ae", "fanout"), "work", "which has no binding"),
}  # fmt: skip

SOUND: dict[str, str] = {
    "no dead letters": RING + QUEUES.format(""),
    "a fanout exchange": letters(DLX, exchange("dlx", "fanout") + DEAD + bound("dlx", "dead")),
    "whatever its bindings pass on": letters(DLX, exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "other")),
    "the rest of a direct exchange": letters(DLX, exchange("dlx", "direct", 'arguments = { alternate-exchange = "late" }') + exchange("late", "fanout") + DEAD + bound("late", "dead")),
    "the default exchange": letters('x-dead-letter-exchange = ""'),
    "an exchange of others": letters(DLX, exchange("dlx", "direct", 'owner = "external"')),
    "an exchange to which others bind": letters('x-dead-letter-exchange = "other"', DEAD + bound("other", "dead", "x")),
    "the keys of a ring return": letters('x-dead-letter-exchange = "work"'),
    "a policy for others": RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"', "^other"),
    "a policy that precedes": RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"') + policy("max-length = 5").replace('"p"', '"q"\npriority = 2'),
    "a queue of no ring": queue("other", DLX),
    "an exchange that does not hash": exchange("in", "direct", 'arguments = { alternate-exchange = "none" }'),
    "an alternate exchange of the broker": RING.replace("ring =", 'arguments = { alternate-exchange = "" }\nring =') + QUEUES.format(""),
}  # fmt: skip


def of_file(text: str) -> list[Finding]:
    topology = Topology.from_toml(text)
    return [*DeadLetters.of_file(topology).findings_of_file()]


@pytest.mark.parametrize("name", LOST)
def test_messages_that_certainly_get_lost_are_found(name: str) -> None:
    text, places, message = LOST[name]
    found = of_file(text)
    assert [str(finding.destination or finding.exchange) for finding in found] == places.split()
    assert {finding.kind for finding in found} == {"alternate" if "alternate" in name else "dead-letter"}
    assert all(message in finding.message and finding.fix for finding in found), found[0]


@pytest.mark.parametrize("name", SOUND)
def test_messages_that_may_reach_a_queue_are_no_finding(name: str) -> None:
    assert of_file(SOUND[name]) == []


@pytest.mark.parametrize("name", LOST)
def test_a_broker_that_has_the_file_has_the_same_findings(name: str) -> None:
    topology = Topology.from_toml(LOST[name][0])
    if any(one.slots for one in topology.exchanges):
        return
    live = LiveTopology.of_file(topology)
    places = LOST[name][1].split()
    for wanted in (None, topology):
        found = [one for one in check(live, wanted).findings if one.kind in ("dead-letter", "alternate")]
        assert [str(one.destination or one.exchange) for one in found] == places
        assert not any("the file" in one.message for one in found)


def test_a_finding_is_one_of_the_exchange_of_its_queue() -> None:
    live = LiveTopology.of_file(Topology.from_toml(letters(DLX) + queue("other", DLX)))
    for found in (check(live), check(live, exchange="work")):
        places = [(one.exchange, one.destination) for one in found.findings if one.kind == "dead-letter"]
        assert places == [("work", "work.1"), ("work", "work.2")]
