"""Rings by the file that was applied last, on a real broker: as ``rabbitmqctl`` reads them, whenever an apply ends."""

from __future__ import annotations

import json
import os
import random
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changed_site import ChangedSite, changed_site
from dying_applier import DyingApplier, dying_applier
from few_seeds import few_seeds
from quick_rings import quick_prefix

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import RecordedRings
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, plan

# The file is among the slow ones for its one extended test.
pytestmark = [pytest.mark.broker, pytest.mark.core]

#: More by `make long WHAT=apply`.
PLANS = int(os.environ.get("APPLY_PLANS", "8"))
QUEUES = [f"h.{n}" for n in range(6)]


def drawn(random_: random.Random) -> Topology:
    """Return a topology of one or two rings."""
    exchanges = []
    for name in ("h", "h2")[: random_.randint(1, 2)]:
        chosen = random_.sample(QUEUES, random_.randint(1, 5))
        ring = tuple(RingMember(queue, random_.choice(["1", "1", "2"])) for queue in chosen)
        exchanges.append(ExchangeDefinition(name, "x-consistent-hash", ring=ring))
    used = {member.destination for exchange in exchanges for member in exchange.ring or ()}
    queues = [
        QueueDefinition(queue, arguments=random_.choice([{}, {}, {}, {"x-max-length": 5}]))
        for queue in QUEUES
        if queue in used
    ]
    return Topology(tuple(exchanges), tuple(queues), owns=("h*",))


@pytest.fixture
def site(broker: RunningBroker) -> Iterator[ChangedSite]:
    with few_seeds(), changed_site(broker) as made:
        yield made


def connected(site: ChangedSite, record: RecordedRings) -> Broker:
    """Return the broker with a record."""
    return Broker(site.broker.url, site.broker.management_url, ring_source=record)


def changed(old: Topology, new: Topology, random_: random.Random) -> Topology:
    """Return a wanted topology that has much in common with the old one, or nothing."""
    kind = random_.randrange(4)
    (first, *_) = old.exchanges
    members = [*(first.ring or ())]
    if kind == 0:
        members.pop(random_.randrange(len(members)))
    elif kind == 1:
        members.append(RingMember("h.new"))
    elif kind == 2:
        random_.shuffle(members)
    else:
        return new
    queues = [*old.queues, QueueDefinition("h.new")]
    exchanges = (ExchangeDefinition(first.name, first.type, ring=tuple(members)), *old.exchanges[1:])
    return Topology(exchanges, tuple(queues), owns=old.owns)


@pytest.mark.chx_broker(">=4.3")
def test_a_recorded_ring_is_the_one_that_is_read_when_an_apply_is_killed(site: ChangedSite) -> None:
    seen = killed_everywhere(site, plans=3)
    assert seen["recorded"] > 10, seen


@pytest.mark.chx_broker(">=4.3")
@pytest.mark.extended
@pytest.mark.timeout(30 * PLANS + 300)
def test_a_recorded_ring_is_the_one_that_is_read_whenever_an_apply_is_killed(site: ChangedSite) -> None:
    seen = killed_everywhere(site, plans=PLANS)
    assert seen["recorded"] > 5 * seen["assumed"] > 0, seen


@pytest.mark.chx_broker(">=4.3")
@pytest.mark.extended
def test_rings_that_a_killed_apply_has_made_are_recorded_by_the_next_one(site: ChangedSite) -> None:
    """A queue is left to delete, so the next plan has no steps of rings."""
    old = Topology.from_toml(owned({"h": ["h.1", "h.0", "h.2"]}))
    new = Topology.from_toml(owned({"h": ["h.0", "h.2"], "h2": ["h.4", "h.2"]}))
    seen: Counter[str] = Counter()
    with dying_applier(site) as applier:
        killed_at_each_operation(site, applier, old, new, seen)
    assert seen["kills"] > 5
    assert seen["differences"] == 0, seen


def owned(rings: dict[str, list[str]]) -> str:
    """Return a file that owns everything, with exchanges by their queues."""
    exchanges = [
        f'[[exchanges]]\nname = "{name}"\ntype = "x-consistent-hash"\n'
        f"ring = [{', '.join(f'{{ queue = {queue!r} }}' for queue in queues)}]\n"
        for name, queues in rings.items()
    ]
    names = sorted({queue for queues in rings.values() for queue in queues})
    return "".join(['owns = ["h*"]\n', *exchanges, *(f'[[queues]]\nname = "{name}"\n' for name in names)])


def killed_everywhere(site: ChangedSite, plans: int) -> Counter[str]:
    """Kill each plan before each of its operations, by SIGKILL, and let the next apply do it with the same two files."""
    seen: Counter[str] = Counter()
    random_ = random.Random(43)  # noqa: S311
    with dying_applier(site) as applier:
        for _ in range(plans):
            old = drawn(random_)
            new = changed(old, drawn(random_), random_)
            killed_at_each_operation(site, applier, old, new, seen)
    assert seen["differences"] == 0, seen
    return seen


def killed_at_each_operation(
    site: ChangedSite, applier: DyingApplier, old: Topology, new: Topology, seen: Counter[str]
) -> None:
    for before in range(200):
        site.apply(Topology(owns=("h*",)), allow_loss=True)
        site.apply(old)
        if not applier.killed(new, before):
            break
        seen["kills"] += 1
        site.wait_until_unlocked()
        compare(site, old, new, seen)


def compare(site: ChangedSite, old: Topology, new: Topology, seen: Counter[str]) -> None:
    """Compare the recorded rings with those that are read, and apply again."""
    read = site.live()
    if read.unfinished == {} and not plan(new, read).changes:
        seen["finished"] += 1  # killed after its last change: `new` is what was applied last
        old = new
    with connected(site, RecordedRings(old, new)) as live:
        recorded = live.topology()
        for name, ring in recorded.rings.items():
            if name.startswith("theirs"):
                continue
            seen[ring.provenance] += 1
            if ring.provenance == "recorded" and ring.buckets != read.rings[name].buckets:
                seen["differences"] += 1
        made = plan(new, recorded)
        if any(refusal.kind == "order" for refusal in made.refusals):
            seen["refused"] += 1
            return
        live.apply(made, allow_moved=1.0, allow_delete=True, allow_loss=True)
        assert not plan(new, live.topology()).changes
    site.check_done(new)
    assert not site.live().unfinished


class Commands:
    """Runs commands on a vhost of which AMQP and the management API are known."""

    def __init__(self, broker: RunningBroker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.at = ["--url", broker.url, "--management-url", str(broker.management_url)]
        self.via = ["--ring-via", shlex.join(quick_prefix(broker))]
        self._folder, self._capsys = folder, capsys

    def file(self, name: str, text: str) -> str:
        """Write a file."""
        (self._folder / name).write_text(text)
        return str(self._folder / name)

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run a command, and return what it prints and says."""
        assert main([*words, *self.at]) == code, self._capsys.readouterr()
        return self._capsys.readouterr()

    def document(self, *words: str, code: int = 0) -> Any:
        """Run a command, and return its JSON."""
        return json.loads(self.run(*words, "--output", "json", code=code)[0])


FILE = """
[variables]
last = 3
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q.2" }, { queue = "q.1", weight = 2 }, { queue = "q.3" }]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "q.1" }, { queue = "q.2" }]
[[queues]]
name = "q.{1..${last}}"
"""
NEXT = FILE.replace('{ queue = "q.3" }]', '{ queue = "q.3" }, { queue = "q.4" }]').replace(
    "last = 3", "last = 4"
)


@pytest.fixture
def commands(
    vhost: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Commands:
    for name in ("RABBIT_CHX_RING_VIA", "RABBIT_CHX_RING_FROM", "RABBIT_CHX_VALUES"):
        monkeypatch.delenv(name, raising=False)
    return Commands(vhost, tmp_path, capsys)


@pytest.mark.chx_broker(">=4.3")
def test_each_command_takes_the_file_that_was_applied_last(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied, wanted = commands.file("applied.toml", FILE), commands.file("next.toml", NEXT)
    commands.run("topology", "apply", applied, "--yes")
    record = ["--ring-from", applied]
    ring = commands.document("ring", "show", "orders", *record)
    assert (ring["provenance"], ring["exchange"]) == ("recorded", "orders")
    assert ring["buckets"] == ["q.2", "q.1", "q.1", "q.3"]
    read = commands.document("ring", "show", "orders", *commands.via)
    assert read["buckets"] == ring["buckets"]
    keys = ["customer-42", "customer-43"]
    answers = commands.document("route", "--exchange", "orders", *keys, *record)
    assert answers["ring"]["provenance"] == "recorded"
    listed = commands.document("ring", "list", *record)["exchanges"]
    assert {entry["provenance"] for entry in listed} == {"recorded"}
    assert [entry["findings"] for entry in listed] == [[], []]
    checked = commands.document("topology", "check", applied, *record)
    rings = {ring["exchange"]: ring["provenance"] for ring in checked["rings"]}
    assert rings == {"events": "recorded", "orders": "recorded"}
    out, _ = commands.run("ring", "check", "orders", *record)
    assert "recorded, not read: orders" in out
    assert commands.document("slots", "show", "events", *record)["provenance"] == "recorded"
    commands.run(
        "slots", "balance", "events", "--pattern", "k-{n}", "--count", "100", "--target", "3", *record
    )
    made = commands.document("topology", "plan", wanted, *record, code=1)
    assert made["checksum"]
    (change,) = [ring for ring in made["rings"] if ring["exchange"] == "orders"]
    assert change["before"]["provenance"] == "recorded"
    assert made["refusals"] == []
    assert commands.document("topology", "plan", wanted, *commands.via, code=1)["changes"] == made["changes"]
    assert f"--ring-from {applied}" in commands.run("topology", "plan", wanted, *record, code=1)[0]
    shuffled = commands.file(
        "shuffled.toml", NEXT.replace('[{ queue = "q.2" }, ', '[{ queue = "q.4" }, { queue = "q.2" }, ')
    )
    commands.file("shuffled.toml", Path(shuffled).read_text().replace(', { queue = "q.4" }]', "]"))
    assert "in this order" in commands.run("topology", "arrange", shuffled, *record)[1]
    found = commands.document("topology", "check", shuffled, *record, code=1)["findings"]
    assert {"order", "missing"} & {finding["kind"] for finding in found}
    repaired = commands.document("ring", "repair", "orders", "--file", shuffled, *record, code=4)
    assert repaired["refusals"][0]["message"].startswith("q.4 is in")
    with monkeypatch.context() as environment:
        environment.setenv("RABBIT_CHX_RING_FROM", applied)
        done = commands.document("topology", "apply", wanted, "--yes", "--set", "last=4")
    assert done["state"] == "applied"
    (after,) = [entry["ring"] for entry in done["rings"] if entry["exchange"] == "orders"]
    assert after["provenance"] == "recorded"
    assert after["buckets"] == commands.document("ring", "show", "orders", *commands.via)["buckets"]
    assert commands.document("topology", "apply", wanted, "--yes", *record)["state"] == "unchanged"
    assert commands.document("verify", "orders", "--count", "50", "--ring-from", wanted)["mismatches"] == 0


@pytest.mark.chx_broker(">=4.3")
def test_a_broker_that_differs_from_the_record_has_an_assumed_ring(commands: Commands) -> None:
    applied, wanted = commands.file("applied.toml", FILE), commands.file("next.toml", NEXT)
    commands.run("topology", "apply", wanted, "--yes")
    record = ["--ring-from", applied]
    out, errors = commands.run("ring", "show", "orders", *record, "--output", "json")
    assert json.loads(out)["provenance"] == "assumed"
    assert f"the bindings are not those of {applied}: only the broker has q.4=1" in errors
    out, _ = commands.run("ring", "show", "orders", *record)
    assert "only the broker has q.4=1" in " ".join(out.split())
    assert "only the broker has q.4=1" in commands.run("ring", "check", "orders", *record, code=2)[1]
    other = commands.file("other.toml", NEXT.replace(", weight = 2", ""))
    refused = commands.document("topology", "plan", other, *record, code=4)["refusals"]
    assert [refusal["message"] for refusal in refused if "only the broker has q.4=1" in refusal["message"]]
    assert "not checked" in commands.run("ring", "list", *record)[0]


@pytest.mark.chx_broker(">=4.3")
def test_the_output_of_ring_show_is_a_record(commands: Commands) -> None:
    applied = commands.file("applied.toml", FILE)
    commands.run("topology", "apply", applied, "--yes")
    saved = commands.file(
        "ring.json", commands.run("ring", "show", "orders", *commands.via, "--output", "json")[0]
    )
    assert commands.document("ring", "show", "orders", "--ring-from", saved)["provenance"] == "recorded"
    wanted = commands.file("next.toml", NEXT)
    assert commands.document("topology", "plan", wanted, "--ring-from", saved, code=1)["refusals"] == []
    assumed = commands.file("assumed.json", commands.run("ring", "show", "orders", "--output", "json")[0])
    assert (
        "is assumed, so it is not a record"
        in commands.run("ring", "show", "orders", "--ring-from", assumed, code=2)[1]
    )
    unnamed = commands.file(
        "unnamed.json", json.dumps({**json.loads(Path(saved).read_text()), "exchange": None})
    )
    assert "name of its exchange" in commands.run("ring", "show", "orders", "--ring-from", unnamed, code=2)[1]
    definitions = commands.file("definitions.json", '{"exchanges": [], "queues": [], "bindings": []}')
    assert (
        "is a definitions file"
        in commands.run("ring", "show", "orders", "--ring-from", definitions, code=2)[1]
    )
    assert (
        "given twice"
        in commands.run("ring", "show", "orders", "--ring-from", saved, "--ring-via", "", code=2)[1]
    )


@pytest.mark.chx_broker("<4.0")
def test_a_broker_on_mnesia_is_refused(commands: Commands) -> None:
    applied = commands.file("applied.toml", FILE)
    commands.run("topology", "apply", applied, "--yes")
    for words in (("ring", "show", "orders"), ("topology", "plan", applied), ("topology", "check", applied)):
        _, errors = commands.run(*words, "--ring-from", applied, code=2)
        assert "Mnesia does not keep the order of a ring when the broker restarts" in errors
