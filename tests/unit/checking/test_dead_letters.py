"""Dead-letter exchanges and alternate exchanges that lead nowhere: a table of files, and what is found in each."""

from __future__ import annotations

import pytest

from rabbit_chx import Topology
from rabbit_chx.analysis import Finding
from rabbit_chx.checking.dead_letters import DeadLetters
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
TO = 'x-dead-letter-exchange = "", x-dead-letter-routing-key = "{}"'.format
SLOTS = RING.replace("ring =", "slots = 4\nmembers =")
BY_HEADER = RING + 'arguments = { hash-header = "tenant" }\n'
DELAY = queue("delay", 'x-dead-letter-exchange = "work", x-message-ttl = 1000')

#: A file, the names of what is found, and a part of the message.
LOST: dict[str, tuple[str, str, str]] = {
    "a typo": (letters(DLX, exchange("dlxx", "fanout")), "work.1 work.2", "which the file does not have (did you mean dlxx?)"),
    "a typo by a policy": (RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"'), "work.1 work.2", "dlx by the policy p, which the file does not have"),
    "nothing bound": (letters(DLX, exchange("dlx", "fanout")), "work.1 work.2", "which leads to no queue"),
    "another key, of a ring": (letters(DLX, exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "dead")), "work.1 work.2", "passes only the keys of its bindings on"),
    "another key, of slots": (letters(DLX, exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "dead"), SLOTS), "work.1 work.2", "passes only the keys of its bindings on"),
    "another key, of a topic exchange": (letters(DLX, exchange("dlx", "topic") + DEAD + bound("dlx", "dead", "dead")), "work.1 work.2", "passes only the keys of its bindings on"),
    "another dead-letter routing key": (letters(f'{DLX}, x-dead-letter-routing-key = "deadd"', exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "dead")), "work.1 work.2", "routes the key 'deadd' to no queue"),
    "a key that no pattern matches": (letters(f'{DLX}, x-dead-letter-routing-key = "a.b.c"', exchange("dlx", "topic") + DEAD + bound("dlx", "dead", "a.*")), "work.1 work.2", "routes the key 'a.b.c' to no queue"),
    "the key of a binding": (exchange("in", "direct") + queue("q", DLX) + bound("in", "q", "a") + exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "b"), "q", "routes the key 'a' to no queue"),
    "the default exchange and no such queue": (letters(TO("deadd"), DEAD), "work.1 work.2", "the name of the queue deadd, which the file does not have"),
    "the default exchange and the keys of a ring": (letters('x-dead-letter-exchange = ""', DEAD), "work.1 work.2", "which are no names of queues"),
    "one key for a ring": (letters('x-dead-letter-exchange = "work", x-dead-letter-routing-key = "retry"'), "work.1 work.2", "work hashes it: one of its members gets all of them"),
    "one key for a modulus": (letters('x-dead-letter-exchange = "again", x-dead-letter-routing-key = "k"', exchange("again", "x-modulus-hash", 'queues = ["a", "b"]') + '[[queues]]\nname = "a"\n[[queues]]\nname = "b"\n'), "work.1 work.2", "again hashes it"),
    "at-least-once": (RING + '[[queues]]\nname = "work.{1..2}"\ntype = "quorum"\narguments = { x-dead-letter-exchange = "dlx", x-overflow = "reject-publish", x-dead-letter-strategy = "at-least-once" }\n', "work.1 work.2", "or stay in it if its overflow is reject-publish"),
    "an alternate exchange": (exchange("in", "direct", 'arguments = { alternate-exchange = "aee" }') + exchange("ae", "fanout"), "in", "aee, which the file does not have (did you mean ae?)"),
    "an alternate exchange by a policy": (exchange("in", "direct") + policy('alternate-exchange = "aee"', "^in", "exchanges"), "in", "which the file does not have"),
    "an alternate exchange without a queue": (exchange("in", "direct", 'arguments = { alternate-exchange = "ae" }') + exchange("ae", "fanout"), "in", "which leads to no queue"),
    "an alternate exchange that is itself": (exchange("in", "direct", 'arguments = { alternate-exchange = "in" }') + DEAD + bound("in", "dead", "a"), "in", "which leads to no queue"),
}  # fmt: skip

SOUND: dict[str, str] = {
    "no dead letters": RING + QUEUES.format(""),
    "a fanout exchange": letters(DLX, exchange("dlx", "fanout") + DEAD + bound("dlx", "dead")),
    "a topic exchange": letters(DLX, exchange("dlx", "topic") + DEAD + bound("dlx", "dead", "customer.*")),
    "a headers exchange": letters(DLX, exchange("dlx", "headers") + DEAD + bound("dlx", "dead")),
    "a key that a pattern matches": letters(f'{DLX}, x-dead-letter-routing-key = "a.b.c"', exchange("dlx", "topic") + DEAD + bound("dlx", "dead", "a.#")),
    "a key": letters(f'{DLX}, x-dead-letter-routing-key = "dead"', exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "dead")),
    "the rest of a direct exchange": letters(DLX, exchange("dlx", "direct", 'arguments = { alternate-exchange = "late" }') + exchange("late", "fanout") + DEAD + bound("late", "dead")),
    "a queue": letters(TO("dead"), DEAD),
    "a queue of others": letters(TO("dead"), DEAD + 'owner = "external"\n'),
    "an exchange of others": letters(DLX, exchange("dlx", "direct", 'owner = "external"')),
    "an exchange to which others bind": letters('x-dead-letter-exchange = "other"', DEAD + bound("other", "dead", "x")),
    "the keys of bindings": exchange("in", "direct") + queue("q", DLX) + bound("in", "q", "a") + exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "a"),
    "keys of others": exchange("in", "fanout") + queue("q", DLX) + bound("in", "q") + exchange("dlx", "direct") + DEAD + bound("dlx", "dead", "b"),
    "the keys of a ring return": letters('x-dead-letter-exchange = "work"'),
    "one key for a ring by a header": letters('x-dead-letter-exchange = "work", x-dead-letter-routing-key = "retry"', ring=BY_HEADER),
    "a retry of a ring with a delay": letters('x-dead-letter-exchange = "late"', exchange("late", "fanout") + DELAY + bound("late", "delay")),
    "a stream": queue("work", "", "stream") + policy('dead-letter-exchange = "dlx"'),
    "a policy for others": RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"', "^other"),
    "a policy that precedes": RING + QUEUES.format("") + policy('dead-letter-exchange = "dlx"') + policy("max-length = 5").replace('"p"', '"q"\npriority = 2'),
    "an alternate exchange": exchange("in", "direct", 'arguments = { alternate-exchange = "ae" }') + exchange("ae", "fanout") + DEAD + bound("ae", "dead"),
    "an alternate exchange of the broker": exchange("in", "direct", 'arguments = { alternate-exchange = "" }'),
}  # fmt: skip


def of_file(text: str) -> list[Finding]:
    topology = Topology.from_toml(text)
    return [*DeadLetters.of_file(topology).findings(topology.queues, topology.exchanges)]


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


def test_a_check_of_an_exchange_is_one_of_its_queues() -> None:
    lost = (
        letters(DLX)
        + queue("other", DLX)
        + exchange("in", "direct", 'arguments = { alternate-exchange = "a" }')
    )
    live = LiveTopology.of_file(Topology.from_toml(lost))
    found = check(live, exchange="work").findings
    assert [one.destination for one in found if one.kind in ("dead-letter", "alternate")] == [
        "work.1",
        "work.2",
    ]


def test_only_the_queues_of_a_file_are_compared_with_it() -> None:
    live = LiveTopology.of_file(Topology.from_toml(letters(DLX) + queue("other", DLX)))
    wanted = Topology.from_toml(letters(DLX))
    found = [one.destination for one in check(live, wanted).findings if one.kind == "dead-letter"]
    assert found == ["work.1", "work.2"]
