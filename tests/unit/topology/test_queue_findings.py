"""Queues of a hash exchange that lose messages, and queues that are unlike the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rabbit_chx.analysis import Finding
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import PolicyDefinition, Topology, check
from rabbit_chx.topology.slots import expanded

RELEASE = Release("4.3.6")
FOUR = {f"q{n}": "" for n in range(1, 5)}


def live(queues: dict[str, str], *policies: PolicyDefinition, release: Release = RELEASE) -> Topology:
    """Return a ring of queues, each with further lines of its entry in a topology file."""
    members = ", ".join(f'{{ queue = "{name}" }}' for name in queues)
    entries = "".join(f'[[queues]]\nname = "{name}"\n{lines}\n' for name, lines in queues.items())
    text = f'[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{members}]\n{entries}'
    ring = HashRing.from_buckets(list(queues), release)
    topology = replace(Topology.from_toml(text), policies=policies, release=release)
    return topology.with_rings({"orders": ring})


def found(there: Topology, kind: str) -> list[Finding]:
    findings = check(there, exchange="orders").findings
    assert all(finding.exchange == "orders" for finding in findings)
    return [finding for finding in findings if finding.kind == kind]


def alike(lines: str, *policies: PolicyDefinition, release: Release = RELEASE) -> Topology:
    """Return a ring of two queues with the same lines."""
    return live({"q1": lines, "q2": lines}, *policies, release=release)


def policy(definition: dict[str, Any], pattern: str = "^q", name: str = "limits") -> PolicyDefinition:
    return PolicyDefinition(name, pattern, "queues", definition)


def test_a_ttl_is_found_with_the_keys_that_go_there_and_where_messages_end() -> None:
    there = live({**FOUR, "q2": "arguments = { x-message-ttl = 5000 }"})
    (ttl,) = found(there, "expiring-destination")
    share = there.rings["orders"].shares()["q2"]
    assert (ttl.destination, ttl.share) == ("q2", share)
    assert ttl.message == (
        "q2 has a message TTL of 5,000 ms: what nobody reads in that time is lost; "
        f"{share:.3%} of all keys go there"
    )
    assert ttl.fix == "let a queue without x-message-ttl take the place of q2"
    lines = 'arguments = { x-message-ttl = 0, x-dead-letter-exchange = "late" }'
    (late, _) = found(alike(lines), "expiring-destination")
    assert "TTL of 0 ms: what nobody reads in that time goes to the dead-letter exchange late" in late.message
    (default, _) = found(alike(lines.replace('"late"', '""')), "expiring-destination")
    assert "goes to the default exchange" in default.message


def test_a_queue_that_expires_is_found_with_what_moves_then() -> None:
    there = live({**FOUR, "q1": "arguments = { x-expires = 60_000 }"})
    ring = there.rings["orders"]
    (expiring,) = found(there, "expiring-destination")
    assert (expiring.destination, expiring.share) == ("q1", ring.shares()["q1"])
    assert expiring.message.startswith(
        "q1 expires after 60,000 ms without use, and its messages go with it: "
        f"{ring.share_moved(ring.unbind('q1')):.3%} of all keys move then"
    )
    assert found(there, "transient-destination") == []


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
def test_a_limit_that_drops_the_oldest_is_found(argument: str) -> None:
    (dropping, _) = found(alike(f"arguments = {{ {argument} = 1000 }}"), "dropping-destination")
    what = "bytes" if argument.endswith("bytes") else "messages"
    assert (
        f"q1 holds at most 1,000 {what}: beyond that the oldest one is lost, though it was"
        in dropping.message
    )
    assert "overflow to reject-publish for q1 by a policy" in dropping.fix


@pytest.mark.parametrize(
    ("type_", "overflow", "drops"),
    [
        ("classic", "drop-head", True),
        ("classic", "reject-publish", False),
        ("classic", "reject-publish-dlx", False),
        ("quorum", "drop-head", True),
        ("quorum", "reject-publish", False),
        ("quorum", "reject-publish-dlx", True),
    ],
)
def test_a_queue_that_refuses_what_does_not_fit_loses_nothing(
    type_: str, overflow: str, *, drops: bool
) -> None:
    lines = f'type = "{type_}"\narguments = {{ x-max-length = 5 }}'
    there = alike(lines, policy({"overflow": overflow}))
    assert len(found(there, "dropping-destination")) == 2 * drops


def test_an_overflow_decides_by_the_argument_of_a_classic_queue_and_by_the_policy_of_a_quorum_queue() -> None:
    lines = 'type = "{}"\narguments = {{ x-max-length = 5, x-overflow = "reject-publish" }}'
    drop = policy({"overflow": "drop-head"})
    assert found(alike(lines.format("classic"), drop), "dropping-destination") == []
    (quorum, _) = found(alike(lines.format("quorum"), drop), "dropping-destination")
    assert quorum.fix.startswith("set overflow to reject-publish in the policy limits")
    explicit = lines.format("classic").replace("reject-publish", "drop-head")
    (classic, _) = found(alike(explicit), "dropping-destination")
    assert classic.fix == "let a queue with x-overflow = reject-publish take the place of q1"


def test_policies_and_operator_policies_count_and_the_smaller_number_holds() -> None:
    limits = policy({"message-ttl": 9_000, "max-length": 50, "expires": 10}, "^q1$")
    there = live(FOUR, limits)
    findings = check(there).findings
    assert [(finding.kind, finding.destination) for finding in findings] == [
        ("expiring-destination", "q1"),
        ("dropping-destination", "q1"),
        ("expiring-destination", "q1"),
    ]
    assert "TTL of 9,000 ms by the policy limits: " in findings[0].message
    assert findings[0].fix == "take message-ttl out of the policy limits"
    caps = policy({"message-ttl": 7_000}, "^q1$", "caps")
    (ttl, _) = found(replace(there, operator_policies=(caps,)), "expiring-destination")
    assert "TTL of 7,000 ms by the operator policy caps: " in ttl.message
    (ttl, _) = found(alike("arguments = { x-message-ttl = 6000 }", limits), "expiring-destination")[:2]
    assert "TTL of 6,000 ms: " in ttl.message


def test_the_broker_says_which_policy_applies() -> None:
    """It passes over a policy with a key that queues of the type do not have."""
    skipped = replace(policy({"delivery-limit": 5}, name="skipped"), priority=9)
    there = live(FOUR, skipped, policy({"message-ttl": 9_000}))
    assert check(there).sound
    there = replace(there, applied_policies={"q1": "limits", "q2": None})
    assert [finding.destination for finding in found(there, "expiring-destination")] == ["q1"]


def test_a_stream_is_never_found_and_a_quorum_queue_has_a_ttl_since_3_10() -> None:
    definition = {"message-ttl": 5, "max-length-bytes": 5}
    assert check(alike('type = "stream"\narguments = { x-max-length-bytes = 5 }', policy(definition))).sound
    ttl = policy({"message-ttl": 5})
    assert check(alike('type = "quorum"', ttl, release=Release("3.9.29"))).sound
    assert len(check(alike('type = "quorum"', ttl, release=Release("3.10.0"))).findings) == 2


def test_a_member_that_is_unlike_most_is_odd() -> None:
    quorum = 'type = "quorum"\narguments = { x-single-active-consumer = true }'
    there = live({**dict.fromkeys(FOUR, quorum), "q3": "arguments = { x-max-priority = 5 }"})
    (odd,) = found(there, "odd-member")
    assert (odd.destination, odd.share) == ("q3", there.rings["orders"].shares()["q3"])
    assert odd.message == (
        "q3 is unlike most of the 4 queues: type is 'classic', not 'quorum', "
        "x-max-priority is 5, not nothing, x-single-active-consumer is nothing, not true; "
        f"{odd.share:.3%} of all keys go there"
    )
    assert odd.fix == "let a queue like the others take the place of q3"


def test_where_no_kind_is_that_of_most_no_member_is_odd_but_all_differ() -> None:
    (divided,) = check(live({"q1": "", "q2": 'type = "quorum"'})).findings
    assert (divided.kind, divided.destination, divided.share) == ("odd-member", None, 1.0)
    assert divided.message == "the queues have no type in common: 'classic' at q1; 'quorum' at q2"
    lines = dict(zip(FOUR, ("", "", 'type = "quorum"', 'type = "stream"'), strict=True))
    (half,) = check(live(lines)).findings
    assert half.message.endswith("'classic' at q1, q2; 'quorum' at q3; 'stream' at q4")


def test_what_is_normal_to_differ_is_not_odd() -> None:
    dead = 'arguments = {{ x-dead-letter-exchange = "dead.{0}", x-dead-letter-routing-key = "q{0}.dead" }}'
    others = {name: dead.format(number) for number, name in enumerate(FOUR, 1)}
    placed = others["q1"].replace("{ ", '{ x-queue-leader-locator = "balanced", ')
    assert check(live({**others, "q1": placed})).sound
    other = others | {"q4": others["q4"].replace("q4.dead", "lost")}
    (odd,) = check(live(other)).findings
    assert "x-dead-letter-routing-key is 'lost', not 'q1.dead'" in odd.message


def test_the_queues_of_slots_are_looked_at_and_the_park_is_not() -> None:
    wanted = Topology.from_toml("""
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "q{1..3}" }]
[[queues]]
name = "q{1..2}"
[[queues]]
name = "q3"
type = "quorum"
arguments = { x-message-ttl = 5000 }
[[queues]]
name = "orders.park"
arguments = { x-max-length = 5, x-message-ttl = 5 }
""")
    plain = expanded(wanted, Topology())
    slots = [member.destination for member in (plain.exchange("orders") or plain.exchanges[0]).ring or ()]
    there = replace(plain, release=RELEASE).with_rings({"orders": HashRing.from_buckets(slots, RELEASE)})
    findings = check(there).findings
    shares = there.rings["orders"].shares()
    share = sum(
        shares[ExchangeRef(binding.source)] for binding in there.bindings if binding.destination == "q3"
    )
    assert [(finding.kind, finding.destination) for finding in findings] == [
        ("expiring-destination", "q3"),
        ("odd-member", "q3"),
    ]
    assert {round(finding.share or 0, 9) for finding in findings} == {round(share, 9)}
