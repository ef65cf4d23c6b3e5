"""Scenarios of plans: the wanted topology, the live topology, and the texts of the plan that are stored.

The stored plans are in tests/unit/topology/planning/plans; ``tests/unit/topology/planning/test_stored_plans.py --update`` writes them.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

from sides import as_live
from slot_files import live_of

from rabbit_chx.cli.plan_report import PlanReport
from rabbit_chx.cli.printed import WordedReport
from rabbit_chx.rendering import ConsoleOutput, MarkdownOutput
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)

_RELEASE = Release("4.3.6")
_WIDTH = 100
#: The scenarios whose Markdown is stored too. It has the same blocks as the text for a terminal.
_PAGES = {
    "04-a-queue-is-added-in-the-middle",
    "21-what-is-owned-is-deleted",
    "37-names-that-a-page-or-a-terminal-takes-for-something-else",
    "39-half-of-many-queues-goes",
    "46-slots-for-another-queue",
}

_QUEUES = '[[queues]]\nname = "{}"\ntype = "quorum"\n'


def stored_texts(name: str) -> dict[str, str]:
    """Return the stored plan of a scenario by file ending: JSON, text for a terminal, and of some scenarios Markdown."""
    made = plan(*SCENARIOS[name])
    report = WordedReport(PlanReport(made, [("file", "topology.toml")]))
    console, page = io.StringIO(), io.StringIO()
    ConsoleOutput(console, _WIDTH).show(report)
    texts = {".json": _lines(report.as_json()), ".txt": console.getvalue()}
    if name in _PAGES:
        MarkdownOutput(page).show(report)
        texts[".md"] = page.getvalue()
    return texts


def _lines(document: dict[str, Any]) -> str:
    """Return the JSON, with each change, ring and refusal on a line of its own."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            entries = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{entries}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _file(
    ring: str = "", *, head: str = "", exchange: str = "", rest: str = "", queues: str | None = None
) -> Topology:
    """Return a topology with the hash exchange ``orders``; a ring is written as ``q1 q2:3 (exchange)``."""
    names = [part.partition(":")[0] for part in ring.split() if not part.startswith("(")]
    listed = names if queues is None else queues.split()
    declared = "".join(_QUEUES.format(name) for name in listed)
    return Topology.from_toml(
        f'{head}\n[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{_entries(ring)}]\n'
        f"{exchange}\n{declared}{rest}"
    )


def _entries(ring: str) -> str:
    entries = []
    for part in ring.split():
        name, _, weight = part.partition(":")
        kind, name = ("exchange", name[1:-1]) if name.startswith("(") else ("queue", name)
        entries.append(f'{{ {kind} = "{name}", weight = {weight or 1} }}')
    return ", ".join(entries)


def _live(
    topology: Topology, buckets: list[Place] | None = None, release: Release = _RELEASE
) -> LiveTopology:
    """Return a topology as it is read from a broker; without buckets, each ring is as its members are listed."""
    rings = {
        exchange.name: HashRing.from_bindings([member.binding for member in exchange.ring], release).buckets
        for exchange in topology.exchanges
        if exchange.ring is not None
    }
    if buckets is not None:
        rings["orders"] = tuple(buckets)
    read = {name: HashRing.from_buckets(held, release, next_bucket=len(held)) for name, held in rings.items()}
    return as_live(replace(topology, cluster="rabbit@prod"), release=release).with_rings(read)


def _unread(topology: Topology) -> LiveTopology:
    """Return a topology whose rings are assumed from its bindings."""
    return as_live(topology, rings={}, release=_RELEASE)


_TEN = "q1 q2 q3 q4 q5 q6 q7 q8 q9 q10"
_NOTHING = LiveTopology(release=_RELEASE, cluster="rabbit@prod")
_AUDIT = '[[exchanges]]\nname = "audit"\ntype = "topic"\n[[queues]]\nname = "audit.all"\n'
_BOUND = '[[bindings]]\nsource = "audit"\nqueue = "audit.all"\nrouting_key = "{}"\n'
_POLICY = '[[policies]]\nname = "shards"\npattern = "^images$"\napply_to = "exchanges"\ndefinition = {{ shards-per-node = {} }}\n'
_JOBS = '[[queues]]\nname = "jobs"\n{}\n'
_SPLIT = replace(
    _file("q1 q2"),
    exchanges=(
        replace(
            _file("q1 q2").exchanges[0],
            ring=(RingMember("q1"), RingMember("q2"), RingMember("q1", "2")),
        ),
    ),
)

_UNLIKE = sorted(f"{first}-{second}" for first in "abcdefghij" for second in "klmnopqrst")


def _many(count: int) -> Topology:
    """Return a hash exchange with so many queues."""
    return Topology.from_toml(
        '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\n'
        f'ring = [{{ queue = "orders.{{1..{count}}}" }}]\n[[queues]]\nname = "orders.{{1..{count}}}"\ntype = "quorum"\n'
    )


def _two_rings(orders: str, events: str) -> Topology:
    head = "max_share_moved = 0.1"
    other = f'[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{_entries(events)}]\n'
    return _file(orders, head=head, rest=other, queues="q1 q2 q3")


_EVENTS = '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n'
_THREE, _FOUR = '[{ queue = "q{1..3}" }]', '[{ queue = "q{1..4}" }]'


def _slots(count: int, members: str, queues: str = "q{1..4}") -> Topology:
    declared = f'[[queues]]\nname = "{queues}"\ntype = "quorum"\n' if queues else ""
    return Topology.from_toml(f"{_EVENTS}slots = {count}\nmembers = {members}\n{declared}")


def _without(live: LiveTopology, source: str) -> LiveTopology:
    return replace(live, bindings=tuple(binding for binding in live.bindings if binding.source != source))


SCENARIOS: dict[str, tuple[Topology, LiveTopology]] = {
    "01-nothing-to-change": (_file("q1 q2"), _live(_file("q1 q2"))),
    "02-everything-is-new": (_file("q1 q2:2 (audit)", rest=_AUDIT + _BOUND.format("#")), _NOTHING),
    "03-a-queue-is-added": (_file("q1 q2 q3 q4"), _live(_file("q1 q2 q3"))),
    "04-a-queue-is-added-in-the-middle": (_file("q1 q4 q2 q3"), _live(_file("q1 q2 q3"))),
    "05-the-last-queue-goes": (_file("q1 q2", queues="q1 q2 q3"), _live(_file("q1 q2 q3"))),
    "06-the-first-of-ten-goes-and-too-much-moves": (
        _file(_TEN[3:], head="max_share_moved = 0.2", queues=_TEN),
        _live(_file(_TEN)),
    ),
    "07-the-last-takes-the-place-of-the-first": (
        _file("q10 q2 q3 q4 q5 q6 q7 q8 q9", queues=_TEN),
        _live(_file(_TEN)),
    ),
    "08-a-weight-changes": (_file("q1 q2:3 q3"), _live(_file("q1 q2 q3"))),
    "09-two-members-are-swapped": (_file("q1 q3 q2"), _live(_file("q1 q2 q3"))),
    "10-a-member-gives-way-to-another": (_file("q1 q4 q3", queues="q1 q2 q3 q4"), _live(_file("q1 q2 q3"))),
    "11-the-only-member-changes": (_file("q2", queues="q1 q2"), _live(_file("q1"))),
    "12-a-ghost-bucket": (_file("q1 q3"), _live(_file("q1 q3"), ["q1", "ghost", "q3"])),
    "13-a-binding-without-a-bucket": (_file("q1 q2 q3"), _live(_file("q1 q2 q3"), ["q1", "q3"])),
    "14-a-second-binding": (_file("q1 q2"), _live(_SPLIT)),
    "15-a-second-binding-that-appends": (_file("q1 q2"), _live(_SPLIT, None, Release("3.10.0"))),
    "16-a-hole": (_file("q1 q2"), _live(_file("q1 q2"), ["q1", None, "q2"])),
    "17-the-order-after-a-restart": (_file("q3 q1 q2"), _live(_file("q3 q1 q2"), ["q2", "q3", "q1"])),
    "18-a-ring-that-was-not-read": (_file("q1 q2 q3"), _unread(_file("q1 q2"))),
    "19-a-limit-of-the-exchange": (
        _file("q1 q2 q3", head="max_share_moved = 0.5", exchange="max_share_moved = 0.3"),
        _live(_file("q1 q2")),
    ),
    "20-another-cluster": (_file("q1 q2", head='cluster = "rabbit@test"'), _live(_file("q1"))),
    "21-what-is-owned-is-deleted": (
        _file("q1", head='owns = ["q*", "audit*"]'),
        _live(_file("q1 q2", rest=_AUDIT + _BOUND.format("#"))),
    ),
    "22-what-is-not-owned-stays": (
        _file("q1"),
        _live(_file("q1 q2", rest=_AUDIT + _BOUND.format("#") + _POLICY.format(2))),
    ),
    "23-an-argument-that-a-policy-can-set": (
        _file("q1", rest=_JOBS.format("arguments = { x-max-length = 5 }")),
        _live(_file("q1", rest=_JOBS.format(""))),
    ),
    "24-another-type-of-queue-in-the-ring": (
        _file("q1 q2 q3"),
        _live(Topology.from_toml(_file("q1 q2 q3").to_toml().replace('"quorum"', '"classic"', 1))),
    ),
    "25-another-hash-header": (
        _file("q1 q2", exchange='arguments = { hash-header = "tenant" }'),
        _live(_file("q1 q2")),
    ),
    "26-values-of-another-type": (
        _file(
            "q1",
            rest=_JOBS.format(
                'type = "quorum"\narguments = { x-delayed-retry-min = 1000, x-delayed-retry-max = "1" }'
            ),
        ),
        _live(
            _file(
                "q1",
                rest=_JOBS.format(
                    'type = "quorum"\narguments = { x-delayed-retry-min = "1000", x-delayed-retry-max = 1 }'
                ),
            )
        ),
    ),
    "27-an-external-queue-is-missing": (
        _file("q1", rest=_JOBS.format('owner = "external"')),
        _live(_file("q1")),
    ),
    "28-an-external-queue-differs": (
        _file("q1", rest=_JOBS.format('type = "quorum"\nowner = "external"')),
        _live(_file("q1", rest=_JOBS.format(""))),
    ),
    "29-a-policy-changes": (
        _file("q1", rest=_POLICY.format(4)),
        _live(_file("q1", rest=_POLICY.format(2))),
    ),
    "30-a-binding-changes": (
        _file("q1", head='owns = ["audit*"]', rest=_AUDIT + _BOUND.format("new")),
        _live(_file("q1", rest=_AUDIT + _BOUND.format("old"))),
    ),
    "31-a-queue-that-nobody-declares": (_file("q1 nobody", queues="q1"), _live(_file("q1"))),
    "32-a-weight-over-the-cap": (_file("q1 q2:10001"), _live(_file("q1"))),
    "33-slots": (_slots(8, '[{ queue = "q1" }]', queues=""), _NOTHING),
    "34-an-exchange-that-is-a-member-is-replaced": (
        _file("q1 (audit) q2", rest=_AUDIT + _BOUND.format("#")),
        _live(_file("q1 (audit) q2", rest=_AUDIT.replace("topic", "fanout") + _BOUND.format("#"))),
    ),
    "35-a-direct-exchange-becomes-a-hash-exchange": (
        _file("q1"),
        _live(
            Topology.from_toml(
                '[[exchanges]]\nname = "orders"\n[[queues]]\nname = "q1"\ntype = "quorum"\n'
                '[[bindings]]\nsource = "orders"\nqueue = "q1"\nrouting_key = "key"\n'
            )
        ),
    ),
    "36-a-ghost-exchange": (
        _file("q1 q3"),
        _live(_file("q1 q3"), ["q1", ExchangeRef("ghost"), "q3"]),
    ),
    "37-names-that-a-page-or-a-terminal-takes-for-something-else": (
        Topology(
            (
                ExchangeDefinition(
                    "orders | `all`",
                    "x-consistent-hash",
                    ring=tuple(
                        map(RingMember, ["q{1..3}", "*new*\n# b", "@ops", "#12", "a\\b", "<br>", "\x1b[31m"])
                    ),
                ),
            ),
            policies=(
                PolicyDefinition(
                    "p_1_", "^q|b$", definition={"max-length": 5, "alternate-exchange": "a|b`c`"}
                ),
            ),
        ),
        _live(
            Topology(
                (
                    ExchangeDefinition(
                        "orders | `all`",
                        "x-consistent-hash",
                        ring=tuple(map(RingMember, ["q{1..3}", "@ops", "#12", "a\\b", "<br>", "\x1b[31m"])),
                    ),
                ),
                (QueueDefinition("*new*\n# b"), QueueDefinition("left|over")),
            )
        ),
    ),
    "38-many-new-queues": (
        _many(120),
        _NOTHING,
    ),
    "39-half-of-many-queues-goes": (
        replace(_many(40), owns=("orders.*",)),
        _live(_many(80)),
    ),
    "40-many-names-that-do-not-count-up": (
        Topology(queues=tuple(QueueDefinition(name) for name in _UNLIKE)),
        _NOTHING,
    ),
    "41-two-rings-and-a-limit-for-all": (
        _two_rings("q1 q2 q3", "q2 q3"),
        _live(_two_rings("q1 q2", "q1 q2 q3")),
    ),
    "42-tables-and-lists-as-arguments": (
        _file(
            "q1",
            rest=_JOBS.format('type = "quorum"\narguments = { x-delayed-retry-min = { at = [1, 2, "x"] } }')
            + _POLICY.format(4),
        ),
        _live(
            _file(
                "q1",
                rest=_JOBS.format('type = "quorum"\narguments = { x-delayed-retry-min = { at = [1, 2] } }'),
            )
        ),
    ),
    "43-a-ring-that-is-only-rearranged": (
        _file("q3 q1 q2", head="max_share_moved = 0.05"),
        _live(_file("q1 q2 q3")),
    ),
    "44-the-exchange-was-empty": (_file("q1 q2"), _live(_file("", queues="q1 q2"))),
    "45-new-slots": (_slots(8, _THREE), _NOTHING),
    "46-slots-for-another-queue": (_slots(32, _FOUR), live_of(_slots(32, _THREE))),
    "47-slots-of-a-queue-that-goes": (
        replace(_slots(8, _THREE, queues="q{1..3}"), owns=("q*",), max_share_moved=0.1),
        live_of(_slots(8, _FOUR)),
    ),
    "48-slots-by-other-weights": (
        _slots(8, '[{ queue = "q1", weight = 2 }, { queue = "q{2..3}" }]'),
        live_of(_slots(8, _THREE)),
    ),
    "49-lists-of-slots": (
        _slots(4, '[{ queue = "q1", slots = [0, 3] }, { queue = "q2", slots = [1, 2] }]'),
        live_of(_slots(4, '[{ queue = "q{1..2}" }]')),
    ),
    "50-more-slots": (_slots(12, _THREE), live_of(_slots(8, _THREE))),
    "51-into-slots": (
        _slots(8, _THREE),
        _live(
            Topology.from_toml(f'{_EVENTS}ring = {_THREE}\n[[queues]]\nname = "q{{1..4}}"\ntype = "quorum"\n')
        ),
    ),
    "52-out-of-slots": (
        Topology.from_toml(
            f'owns = ["events.*"]\n{_EVENTS}ring = {_THREE}\n[[queues]]\nname = "q{{1..4}}"\ntype = "quorum"\n'
        ),
        live_of(_slots(8, _THREE)),
    ),
    "53-a-slot-that-nobody-has": (_slots(4, _THREE), _without(live_of(_slots(4, _THREE)), "events.slot.02")),
}
