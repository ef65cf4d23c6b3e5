"""A hash exchange behind one that hashes the same value, by the definitions of the two alone."""

from __future__ import annotations

import pytest
from slot_files import live_of

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.check_report import file_findings
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import Topology, check

RING = """
[[exchanges]]
name = "{name}"
type = "x-consistent-hash"
arguments = {{ {arguments} }}
ring = [{ring}]
"""
QUEUES = """
[[queues]]
name = "q.{1..3}"
"""
MODULUS = """
[[exchanges]]
name = "{name}"
type = "x-modulus-hash"
"""
BINDING = """
[[bindings]]
source = "{source}"
{place}
"""
TO_BEHIND = '{ exchange = "behind" }, { queue = "q.3" }'
TO_QUEUES = '{ queue = "q.{1..2}" }'


def rings(
    front: str = "", behind: str = "", *, of_front: str = TO_BEHIND, of_behind: str = TO_QUEUES
) -> Topology:
    """Return a ring with another one among its members; each has arguments and members."""
    first = RING.format(name="front", arguments=front, ring=of_front)
    second = RING.format(name="behind", arguments=behind, ring=of_behind)
    return Topology.from_toml(first + second + QUEUES)


def modulus(front: str) -> Topology:
    """Return an ``x-modulus-hash`` exchange behind one whose definition is given."""
    queues = [f'queue = "q.{number}"' for number in (1, 2)]
    bindings = "".join(BINDING.format(source="behind", place=queue) for queue in queues)
    return Topology.from_toml(front + MODULUS.format(name="behind") + bindings + QUEUES)


BEHIND_A_RING = modulus(RING.format(name="front", arguments="", ring=TO_BEHIND))
BEHIND_A_MODULUS = modulus(
    MODULUS.format(name="front")
    + BINDING.format(source="front", place='exchange = "behind"')
    + BINDING.format(source="front", place='queue = "q.3"')
)


def polarized(given: Topology, exchange: str | None = None) -> list[Finding]:
    found = check(live_of(given), exchange=exchange).findings
    return [one for one in found if one.kind == "polarized"]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (rings(), "routing key"),
        (rings('hash-header = "h"', 'hash-header = "h"'), "header 'h'"),
        (rings('hash-property = "message_id"', 'hash-property = "message_id"'), "property 'message_id'"),
        (BEHIND_A_MODULUS, "routing key"),
    ],
)
def test_the_same_value_is_found_on_the_broker_and_in_the_file(given: Topology, value: str) -> None:
    found = polarized(given)
    assert [(one.exchange, str(one.destination)) for one in found] == [("behind", "exchange front")]
    assert [one.severity for one in found] == ["warning"]
    assert f"({value})" in found[0].message
    in_file = [one for one in file_findings(given, NEWEST_COMPARED) if one.kind == "polarized"]
    assert in_file == found


@pytest.mark.parametrize(
    "given",
    [
        rings('hash-header = "h"'),
        rings('hash-header = "h"', 'hash-header = "i"'),
        BEHIND_A_RING,
        rings(of_front='{ exchange = "behind" }'),
        rings(of_behind='{ queue = "q.1" }'),
        rings(of_front='{ exchange = "front" }, { queue = "q.3" }'),
    ],
    ids=["other value", "other header", "other hash", "all keys", "one queue", "itself"],
)
def test_where_nothing_happens_to_the_shares_is_no_finding(given: Topology) -> None:
    assert polarized(given) == []


def test_a_check_of_one_exchange_finds_what_is_behind_it_and_before_it() -> None:
    assert len(polarized(rings(), "front")) == len(polarized(rings(), "behind")) == 1


def test_keys_and_shares_end_at_the_exchange() -> None:
    key_map = rings().key_map("front")
    assert [str(place) for place in key_map.shares()] == ["exchange behind", "q.3"]
    ends = {str(key_map.destination_for(f"key-{number}")) for number in range(20)}
    assert ends == {"exchange behind", "q.3"}
