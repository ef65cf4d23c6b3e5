"""The ring by the records on the broker: the true one, or none, at each moment of an apply, and after changes by others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from model_broker import ModelBroker
from model_client import ClientKilledError, ModelClient
from sides import as_live

from rabbit_chx import ExchangeRef, HashRing, Release, Topology, errors
from rabbit_chx.broker import recording
from rabbit_chx.broker.applying import Permission, apply_plan
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.recording import record_rings, why_not_resumable
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.records.ring_records import record_name
from rabbit_chx.routing import Destination, OrderKnowledge
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    check,
    diff,
    healed,
    plan,
)
from rabbit_chx.topology.objects import is_own

NEWEST = Release("4.3.6")
RELEASES = (NEWEST, Release("4.0.5", store="khepri"))
ALL = Permission(1.0, delete=True, loss=True)
KEEPING = Permission(1.0, delete=True)
NAMES = ("a", "b", "c", "d", "e")
#: A ring whose order nobody knows, and what it is to be.
UNKNOWN, MADE_ANEW = (
    Topology(
        (
            ExchangeDefinition(
                "x", "x-consistent-hash", ring=tuple(map(RingMember, ring)), max_share_moved=0.1
            ),
        ),
        tuple(map(QueueDefinition, "abcd")),
    )
    for ring in ("abc", "dba")
)
#: More by `make long WHAT=apply`.
SEEDS = int(os.environ.get("APPLY_SEEDS", "50"))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Return one or two exchanges with rings of few queues and an exchange; queues and exchanges may differ in more than the ring."""
    places: list[Destination] = [*NAMES, ExchangeRef("f")]
    exchanges = [ExchangeDefinition("f", "fanout")]
    for name in ("x", "y")[: draw(st.integers(0, 2))]:
        chosen: list[Destination] = draw(st.lists(st.sampled_from(places), unique=True, max_size=6))
        ring = tuple(RingMember(place, draw(st.sampled_from(["1", "1", "2"]))) for place in chosen)
        alternate = {"alternate-exchange": "f"} if draw(st.integers(0, 5)) == 0 else {}
        exchanges.append(ExchangeDefinition(name, "x-consistent-hash", arguments=alternate, ring=ring))
    used = {member.destination for exchange in exchanges for member in exchange.ring or ()}
    queues = [
        QueueDefinition(name, "quorum" if draw(st.integers(0, 7)) == 0 else "classic")
        for name in NAMES
        if name in used
    ]
    return Topology(tuple(exchanges), tuple(queues), owns=("*",) if draw(st.booleans()) else ())


@dataclass
class Site:
    """A model, whose rings are compared with what the records say after each operation."""

    model: ModelBroker
    doubts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def holding(cls, topology: Topology, release: Release) -> Site:
        """Return a model with a topology. An apply that reads the rings has recorded them."""
        site = cls(ModelBroker.holding(topology, release))
        client = site.client(has_source=True)
        client.applied(plan(topology, client.live(), propose=False), ALL)
        return site

    def client(self, dies_before: int | None = None, **about: Any) -> ModelClient:
        """Return a client; each of its operations is followed by a comparison."""
        options: dict[str, Any] = {"has_source": False, "observe": self.compare, **about}
        return ModelClient(self.model, dies_before, **options)

    def compare(self) -> None:
        """Compare each ring that is recorded with the one that the model has."""
        self.doubts = {}
        for name, ring in ModelClient(self.model, has_source=False).live().rings.items():
            if ring.provenance == "recorded":
                assert ring.buckets == self.model.rings[name].buckets, name
            else:
                assert ring.provenance is None
                self.doubts[name] = ring.order.doubt

    def apply(self, wanted: Topology, client: ModelClient, permission: Permission = ALL) -> bool:
        """Apply, and return whether that was accepted and ended."""
        made = plan(wanted, client.live(), propose=False)
        if made.refused(allow_moved=1.0, allow_delete=True):
            return False
        try:
            client.applied(made, permission)
        except (ClientKilledError, errors.ApplyError, errors.BrokerRefusedError, errors.PlanRefusedError):
            return False
        return True

    def settle(self, wanted: Topology) -> LiveTopology:
        """Apply to the end, and return what is there; no ring is in doubt, and a second plan is empty."""
        assert self.apply(wanted, self.client())
        assert not self.doubts
        live = self.client().live()
        assert not plan(wanted, live, propose=False).changes
        return live

    def leave(self, wanted: Topology) -> None:
        """Apply while each queue has a message and no consumers: those that are to be deleted stay, without a binding."""
        before = set(self.model.queues)
        self.apply(wanted, self.client(messages=1), KEEPING)
        assert before <= set(self.model.queues)

    def bind(self, exchange: str, queue: str, key: str) -> None:
        """Bind as another program does; not what was unbound before, which the management API does not show."""
        binding = BindingDefinition(exchange, queue, key)
        is_possible = exchange in self.model.rings and queue in self.model.queues
        if is_possible and binding not in self.model.bindings and (queue, key) not in self.known(exchange):
            self.model.bind(binding)
        self.compare()

    def unbind(self, number: int) -> None:
        """Unbind as another program does; not a second binding that it made, which the management API does not show."""
        bound = [binding for binding in self.model.bindings if binding.source in self.model.rings]
        if bound:
            binding = bound[number % len(bound)]
            twice = sum(
                other.destination == binding.destination for other in bound if other.source == binding.source
            )
            if twice == 1 or (binding.destination, binding.routing_key) in self.known(binding.source):
                self.model.unbind(binding)
        self.compare()

    def known(self, exchange: str) -> set[tuple[Destination, str]]:
        """Return the bindings in the records of an exchange."""
        facts = evidence_of(self.client().live())
        records = [record for name, record in facts.records.items() if name == exchange]
        if facts.pending is not None and exchange in facts.pending.rings:
            records.append(facts.pending.rings[exchange].record)
        return {member.binding for record in records for member in record.members}


#: Releases, and what an unbind of all members may leave in the ring of `UNKNOWN`: the hole of a second binding; nothing; the bucket of a
#: queue that ended with the broker.
LEAVING: dict[Release, tuple[str | None, ...]] = {
    Release("3.10.5"): (None,),
    Release("3.10.8"): (),
    Release("4.0.5", store="mnesia"): (),
    Release("4.0.5", store="khepri"): ("gone",),
    NEWEST: ("gone",),
}


@pytest.mark.parametrize("release", LEAVING, ids=str)
@pytest.mark.parametrize("wanted", [UNKNOWN, MADE_ANEW], ids=["as bound", "changed"])
def test_a_ring_of_unknown_order_is_made_anew_whatever_it_was(release: Release, wanted: Topology) -> None:
    """Also if the apply dies before any of its operations. Its second run needs no other permission."""
    expected = HashRing.from_bindings([member.binding for member in wanted.exchanges[0].ring or ()])
    for dies_before in count():
        site = Site(ModelBroker.holding(UNKNOWN, release))
        bindings = site.model.rings["x"].bindings
        buckets = (*LEAVING[release], "c", "a", "b")
        site.model.rings["x"] = HashRing(buckets, release, OrderKnowledge("replayed"), bindings)
        made = plan(wanted, site.client().live(), propose=False)
        assert [refusal.allow_with for refusal in made.refusals] == ["--allow moved=1"]
        assert made.refused(allow_moved=0.9999)
        assert (made.rings["x"].moved, made.rings["x"].moved_at_worst) == (1.0, 1.0)
        assert diff(wanted, site.client().live())
        is_done = site.apply(wanted, site.client(dies_before), Permission(1.0))
        assert is_done or site.apply(wanted, site.client(), Permission(1.0))
        assert site.model.rings["x"].buckets == expected.buckets
        assert not site.doubts
        if is_done:
            break


def test_what_an_apply_has_tried_that_dies_belongs_to_no_topology() -> None:
    """A file that owns all names does not own it."""
    before = Topology(queues=(QueueDefinition("q", "classic"),), owns=("*",))
    wanted = replace(before, queues=(QueueDefinition("q", "quorum"),))
    left = 0
    for dies_before in count():
        site = Site.holding(before, NEWEST)
        if site.apply(wanted, site.client(dies_before)):
            break
        left += "rabbit-chx.trial" in site.model.queues
        assert {change.name for change in plan(wanted, site.client().live()).changes} <= {"q"}
        site.settle(wanted)
    assert left


@given(topologies(), topologies(), st.lists(st.integers(0, 40), max_size=3), st.sampled_from(RELEASES))
@settings(max_examples=SEEDS, phases=[Phase.generate], report_multiple_bugs=False)
def test_after_any_number_of_deaths_the_next_apply_has_the_same_plan_and_the_ring_is_known(
    old: Topology, new: Topology, deaths: list[int], release: Release
) -> None:
    """Whoever applies again has the same plan, with the same checksum, whatever is done of it."""
    site = Site.holding(old, release)
    checksum = plan(new, site.client().live(), propose=False).checksum
    for before in deaths:
        if site.apply(new, site.client(before)):
            break
        site.compare()
        assert plan(new, site.client().live(), propose=False).checksum == checksum
        assert all("has not ended; applying its file" in doubt for doubt in site.doubts.values())
    live = site.settle(new)
    for exchange in new.exchanges:
        if exchange.ring is not None:
            wanted = [member.binding for member in exchange.ring]
            assert site.model.rings[exchange.name].buckets == HashRing.from_bindings(wanted, release).buckets
    assert {*evidence_of(live).records} >= {*site.model.rings} & {exchange.name for exchange in new.exchanges}
    assert evidence_of(live).pending is None


@pytest.mark.extended
@given(topologies(), topologies(), st.sampled_from(RELEASES))
@settings(max_examples=SEEDS)
def test_the_ring_is_known_after_an_apply_that_leaves_queues_unbound(
    old: Topology, new: Topology, release: Release
) -> None:
    """The next apply, when they are empty, ends."""
    new = replace(new, owns=("*",))
    site = Site.holding(old, release)
    for _ in range(2):
        site.leave(new)
        site.compare()
        assert not {name for name in site.doubts if new.exchange(name)}, site.doubts
    assert {queue.name for queue in site.settle(new).queues} == {queue.name for queue in new.queues}


ACTIONS = st.one_of(
    st.tuples(st.just("apply"), topologies(), st.one_of(st.none(), st.integers(0, 40))),
    st.tuples(st.just("refused"), topologies(), st.integers(0, 40)),
    st.tuples(st.just("leave"), topologies()),
    st.tuples(
        st.just("bind"), st.sampled_from("xy"), st.sampled_from(("new", *NAMES)), st.sampled_from("123")
    ),
    st.tuples(st.just("unbind"), st.integers(0, 20)),
)


@pytest.mark.extended
@given(topologies(), st.lists(ACTIONS, max_size=6), st.sampled_from(RELEASES))
@settings(max_examples=SEEDS)
def test_the_ring_is_the_true_one_or_not_determined_whatever_others_do(
    old: Topology, actions: list[tuple[object, ...]], release: Release
) -> None:
    site = Site.holding(old, release)
    site.model.create(QueueDefinition("new"))
    for action in actions:
        match action:
            case ("apply", Topology() as wanted, int() | None as before):
                site.apply(wanted, site.client(before))
            case ("refused", Topology() as wanted, int() as number):
                site.apply(wanted, site.client(refuses=at_number(number)))
            case ("leave", Topology() as wanted):
                site.leave(wanted)
            case ("bind", str() as exchange, str() as queue, str() as key):
                site.bind(exchange, queue, key)
            case ("unbind", int() as number):
                site.unbind(number)
        site.compare()


def at_number(number: int) -> Callable[[Operation], bool]:
    """Return a function that is true for the operation of that number."""
    left = iter(range(number, -1, -1))
    return lambda _: next(left, 1) == 0


def recorded_site(release: Release, *members: str) -> Site:
    """Return a model with the exchange x of these members, such as ``a=2``, whose record is stored."""
    return Site.holding(ring_file(*members), release)


def ring_file(*members: str) -> Topology:
    """Return a topology whose exchange x has these members."""
    pairs = [member.partition("=") for member in members]
    ring = tuple(RingMember(name, weight or "1") for name, _, weight in pairs)
    return Topology(
        (ExchangeDefinition("x", "x-consistent-hash", ring=ring),), tuple(map(QueueDefinition, NAMES))
    )


def ring_of(site: Site) -> HashRing:
    return ModelClient(site.model, has_source=False).live().rings["x"]


@pytest.mark.parametrize("release", [Release("3.10.8"), NEWEST], ids=str)
def test_a_record_holds_for_exactly_its_bindings(release: Release) -> None:
    """Not if one is more, or differs in its arguments. What a service binds again is bound, and what is only removed leaves one ring."""
    more, again = BindingDefinition("x", "d", "2"), BindingDefinition("x", "a", "2")
    with_arguments = replace(again, arguments={"by": "others"})
    site = recorded_site(release, "b", "a=2", "c")
    assert (ring_of(site).provenance, ring_of(site).buckets) == ("recorded", ("b", "a", "a", "c"))
    changes: dict[str, Callable[[], None]] = {
        "other software has bound d=2 since": lambda: site.model.bind(more),
        "other software has bound a=2 with arguments since": lambda: site.model.bind(with_arguments),
    }
    for says, change in changes.items():
        site = recorded_site(release, "b", "a=2", "c")
        site.client().perform(Operation("bind", again))
        assert ring_of(site).provenance == "recorded"
        change()
        assert (ring_of(site).provenance, ring_of(site).order.doubt.rpartition(": ")[2]) == (None, says)
    site = recorded_site(release, "b", "a=2", "c")
    site.model.unbind(BindingDefinition("x", "b", "1"))
    assert (ring_of(site).provenance, ring_of(site).buckets) == ("recorded", ("a", "a", "c"))


@pytest.mark.parametrize("bound", [(), ("a",)], ids=["empty", "one binding"])
def test_a_ring_of_no_or_one_binding_is_known_by_its_record_only(bound: tuple[str, ...]) -> None:
    """Without one, others may have left buckets in it."""
    site = recorded_site(NEWEST, *bound)
    assert ring_of(site).provenance == "recorded"
    site.client().perform(Operation("delete", ExchangeDefinition(record_name("x"), "fanout")))
    assert ring_of(site).provenance is None
    checked = check(site.client().live())
    assert [*checked.unordered] == (["x"] if bound else []), "without a binding every message is unroutable"


@pytest.mark.parametrize("again", ["a", "b", "c"])
def test_a_service_that_binds_its_queue_after_a_killed_apply_makes_no_ring_look_known(again: str) -> None:
    """Then the apply is repeated, whatever was done of it, and whether the service bound with the weight of the file or with another one."""
    wanted, is_applied, before = ring_file("b", "c", "a"), False, 0
    while not is_applied:
        for key in ("1", "3"):
            site = recorded_site(NEWEST, "a", "b", "c")
            checksum = plan(wanted, site.client().live()).checksum
            is_applied = site.apply(wanted, site.client(before))
            if not is_applied:
                binding = BindingDefinition("x", again, key)
                if binding not in site.model.bindings:
                    site.model.bind(binding)
                site.compare()
                made = plan(wanted, site.client().live())
                has_begun = any("has not ended" in doubt for doubt in site.doubts.values())
                is_changed = (again, key) in {("b", "3"), ("c", "3")}  # a member that no step names
                assert made.checksum == checksum or is_changed or not has_begun
                assert site.apply(wanted, site.client())
            assert site.model.rings["x"].buckets == ("b", "c", "a")
            assert not site.doubts
        before += 1


def test_a_service_that_binds_during_an_apply_does_not_change_the_order() -> None:
    """It finds its queue unbound, and binds it as the file says before the apply does."""
    site, bound = recorded_site(NEWEST, "a", "b", "c"), BindingDefinition("x", "a", "1")

    def start_service() -> None:
        if bound not in site.model.bindings:
            site.model.bind(bound)

    client = ModelClient(site.model, has_source=False, observe=start_service)
    client.applied(plan(ring_file("c", "b", "a"), client.live()), ALL)
    assert site.model.rings["x"].buckets == ("c", "b", "a")
    site.compare()


def test_an_apply_that_has_ended_is_not_repeated_after_an_import_of_its_steps() -> None:
    """Definitions were exported while it ran, and are imported after its end, and after another apply."""
    site, steps = recorded_site(NEWEST, "a", "b", "c"), list[ExchangeDefinition]()

    def export() -> None:
        steps.extend(each for name, each in site.model.exchanges.items() if name == "rabbit-chx.apply")

    wanted = ring_file("c", "a", "b")
    client = ModelClient(site.model, has_source=False, observe=export)
    client.applied(plan(wanted, client.live()), ALL)
    for target in (wanted, ring_file("b", "a", "c")):
        assert site.apply(target, site.client())
        site.model.create(steps[0])
        live = site.client().live()
        made = plan(wanted, live)
        assert not made.resumes
        assert not any("has not ended" in warning for warning in made.warnings)
        assert ring_of(site).provenance == "recorded"
    site.compare()


def test_a_record_that_is_imported_during_an_apply_proves_nothing() -> None:
    before, is_applied = 0, False
    while not is_applied:
        site = recorded_site(NEWEST, "a", "b", "c")
        exported = site.model.exchanges[record_name("x")]
        is_applied = site.apply(ring_file("c", "b", "a"), site.client(before))
        if record_name("x") not in site.model.exchanges:
            site.model.create(exported)
        site.compare()
        before += 1


@pytest.mark.parametrize("how", ["exclusive", "auto_delete", "durable"])
def test_no_record_is_stored_of_a_ring_with_a_member_that_the_broker_deletes(how: str) -> None:
    """Its client binds it again, at another place, and a restart may leave its buckets."""
    wanted, about = ring_file("a", "b"), {how: how != "durable"}
    queue = QueueDefinition("a", **about)  # type: ignore[arg-type]
    wanted = replace(wanted, queues=(queue, *wanted.queues[1:]))
    site = Site(ModelBroker.holding(wanted, NEWEST))
    client = site.client(has_source=True)
    with pytest.raises(
        errors.InputError, match=rf"would last, and none is kept: queue a {re.escape(queue.why_transient)}"
    ):
        record_rings(client.live().rings, client)
    other = replace(wanted, exchanges=ring_file("b", "a").exchanges)
    (note,) = client.applied(plan(other, client.live()), ALL).unrecorded
    assert queue.why_transient in note
    assert ring_of(site).provenance is None


def test_a_mark_with_two_persistent_messages_proves_nothing() -> None:
    """A shovel has moved its messages, and made them persistent: they outlive a restart."""
    site = recorded_site(Release("3.10.8"), "b", "a")
    site.model.persistent = 2
    assert ring_of(site).order.doubt.endswith(
        "has 2 persistent messages, and one is its own: other programs publish to it, or moved them"
    )
    site.apply(ring_file("a", "b"), site.client())
    site.model.persistent = 1
    assert ring_of(site).provenance == "recorded"


@pytest.mark.parametrize("again", ["a", "b", "e"])
def test_the_unbinds_of_an_apply_make_no_old_record_fit(again: str) -> None:
    """Another program has bound a member again, behind two others. The exchange is replaced, and the apply ends at each operation."""
    wanted = ring_file("a", "b")
    (exchange,) = wanted.exchanges
    wanted = replace(wanted, exchanges=(replace(exchange, arguments={"hash-header": "tenant"}),))
    before, is_applied = 0, False
    while not is_applied:
        site = recorded_site(NEWEST, "a", "b", "e")
        site.model.unbind(BindingDefinition("x", again, "1"))
        for place in ("c", "d", again):
            site.model.bind(BindingDefinition("x", place, "1"))
        site.model.bindings = dict.fromkeys(sorted(site.model.bindings, key=str))  # as the API lists them
        assert ring_of(site).provenance is None
        is_applied = site.apply(wanted, site.client(before))
        before += 1
    assert ring_of(site).provenance == "recorded"


def test_a_record_that_somebody_changed_is_ignored() -> None:
    site = recorded_site(NEWEST, "b", "a")
    (name,) = (name for name in site.model.exchanges if name.startswith("rabbit-chx."))
    record = site.model.exchanges[name]
    content = str(record.arguments["content"]).replace('"b"', '"c"')
    site.model.exchanges[name] = replace(record, arguments={**record.arguments, "content": content})
    assert ring_of(site).order.doubt == (
        f"the record {name} is ignored: its digest does not match its contents: somebody changed it"
    )


def test_a_restart_on_mnesia_is_found_and_repaired_from_the_record() -> None:
    site = recorded_site(Release("3.10.8"), "b", "a=2", "c", "d")
    assert ring_of(site).provenance == "recorded"
    before = site.model.rings["x"]
    shuffled = HashRing.from_bindings([("a", 2), ("d", 1), ("c", 1), ("b", 1)], before.release)
    site.model.rings["x"] = replace(before, buckets=shuffled.buckets)
    site.model.mark_messages = 1
    assert ring_of(site).order.doubt.endswith(
        "the broker has restarted since, and a restart on Mnesia changes the order"
    )
    live = site.client(has_source=True).live()
    (finding,) = check(live).findings
    assert finding.kind == "order"
    assert re.fullmatch(r"the broker restarted: \d+\.\d+% of the keys moved; record of .*", finding.message)
    site.apply(healed(live, "x"), site.client(has_source=True))
    assert site.model.rings["x"].buckets == before.buckets
    assert check(site.client(has_source=True).live()).findings == ()
    assert ring_of(site).provenance == "recorded"


@pytest.mark.parametrize("listed", [("b", "a"), ("a", "b")])
def test_a_void_record_is_not_compared_with_the_list_of_the_bindings(listed: tuple[str, ...]) -> None:
    """The list has the order of the record by chance, or another one."""
    site = recorded_site(Release("3.10.8"), "b", "a")
    bindings = {binding.destination: binding for binding in site.model.bindings}
    site.model.bindings = dict.fromkeys(bindings[queue] for queue in listed)
    site.model.mark_messages = 1
    checked = check(site.client().live())
    assert checked.findings == ()
    assert checked.not_determined == ("x",)


def test_without_a_record_nothing_is_known_about_a_restart_on_mnesia() -> None:
    model = ModelBroker.holding(ring_file("b", "a"), Release("3.10.8"))
    checked = check(ModelClient(model).live())
    assert checked.findings == ()
    assert re.match(
        "no record of the order before the last start, so whether the restart moved keys is not known",
        checked.unordered["x"],
    )


def test_a_member_that_another_program_bound_again_is_found_by_reading() -> None:
    site = recorded_site(NEWEST, "b", "a", "c")
    site.model.unbind(BindingDefinition("x", "b", "1"))
    site.model.bind(BindingDefinition("x", "b", "1"))
    (finding,) = check(site.client(has_source=True).live()).findings
    assert finding.kind == "order"
    assert "another program bound its members again" in finding.message


@pytest.mark.parametrize("is_bound", [False, True], ids=["unbinds", "binds"])
def test_an_apply_during_which_another_program_changes_the_ring_is_no_success(*, is_bound: bool) -> None:
    site = recorded_site(NEWEST, "b", "a")
    there = len(site.model.bindings)

    def change() -> None:
        if len(site.model.bindings) == there + 1:
            if is_bound:
                site.model.bind(BindingDefinition("x", "d", "1"))
            else:
                site.model.unbind(BindingDefinition("x", "b", "1"))

    client = ModelClient(site.model, has_source=False, observe=change)
    says = r"the bindings of x are not those of .*: someone else binds too"
    if is_bound:
        says = r"someone else binds too: d \(key 1\) is bound to x and not in the plan; unbind it, and apply again"
    with pytest.raises(errors.ApplyError, match=says):
        client.applied(plan(ring_file("b", "a", "c"), client.live()), ALL)
    site.compare()


def test_after_another_program_bound_meanwhile_the_apply_is_repeated() -> None:
    """The place of that binding is not known, nor whether it was bound before a member."""
    site = recorded_site(NEWEST, "b", "a")
    foreign = BindingDefinition("x", "d", "1")

    def change() -> None:
        if BindingDefinition("x", "c", "1") in site.model.bindings and foreign not in site.model.bindings:
            site.model.bind(foreign)

    client = ModelClient(site.model, has_source=False, observe=change)
    with pytest.raises(errors.ApplyError, match="someone else binds too"):
        client.applied(plan(ring_file("c", "e"), client.live()), ALL)
    assert "has not ended" in ring_of(site).order.doubt
    site.model.unbind(foreign)
    assert "has not ended" in ring_of(site).order.doubt
    made = plan(ring_file("c", "e"), site.client().live())
    assert made.resumes
    assert site.apply(ring_file("c", "e"), site.client())
    assert (ring_of(site).provenance, ring_of(site).buckets) == ("recorded", ("c", "e"))


def test_other_bindings_than_those_of_the_record_are_a_finding() -> None:
    site = recorded_site(NEWEST, "a", "b", "c", "d")
    site.model.unbind(BindingDefinition("x", "a", "1"))
    site.model.bind(BindingDefinition("x", "e", "1"))
    (finding,) = check(site.client(has_source=True).live()).findings
    assert finding.kind == "different"
    assert re.fullmatch(
        r"since the record of \S+ by .* another program unbound a=1 and bound e=1: 100.000% of all keys moved",
        finding.message,
    ), finding.message
    site.model.bind(BindingDefinition("x", "a", "2"))
    (finding,) = check(site.client().live()).findings
    assert (finding.share, finding.message.rpartition(" another ")[2]) == (
        None,
        "program unbound a=1 and bound e=1, a=2",
    )
    site.apply(ring_file("a=2", "b"), site.client(has_source=True))
    assert check(site.client().live()).findings == ()


class WithoutNode(ModelClient):
    """A client of 3.10 or 4.0 while the node of the queue c is down. Scripted: a model has one node."""

    def _listed(self, kind: str, *path: str) -> Any:
        listed = super()._listed(kind, *path)
        if kind != "queues":
            return listed
        down = {"type": "classic", "state": "down", "messages": None}
        return [one | (down if one["name"] == "c" else {}) for one in listed]


@pytest.mark.parametrize("has_source", [False, True])
def test_a_binding_that_the_broker_does_not_list_is_not_one_that_was_removed(*, has_source: bool) -> None:
    """3.10 lists no bindings of a classic queue whose node is down, takes it out of the ring, and refuses to bind it."""
    site = recorded_site(Release("3.10.8"), "a", "b", "c")
    share = site.model.rings["x"].shares()["c"]
    site.model.unbind(BindingDefinition("x", "c", "1"))
    live = WithoutNode(site.model, has_source=has_source).live()
    alerts = ExchangeDefinition("alerts", "fanout"), BindingDefinition("alerts", "c", "")
    live = replace(live, exchanges=(*live.exchanges, alerts[0]))
    ring = ring_file("a", "b", "c")
    wanted = replace(ring, exchanges=(*ring.exchanges, alerts[0]), bindings=alerts[1:])
    assert has_source or live.rings["x"].order.doubt.endswith(
        "the broker lists no bindings of c, whose node is down"
    )

    (found,) = check(live).findings
    assert (found.kind, found.destination, found.share) == ("down-destination", "c", None)
    assert re.search(
        rf"still bound; the record of .* gives it {100 * share:.1f}% of all keys$", found.message
    )
    assert found.fix == "start rabbit@model again, and then check again"
    findings = check(live, wanted).findings
    assert {one.kind for one in findings} == {"down-destination", *(["different"] if has_source else [])}
    assert {one.fix for one in findings} == {found.fix, "start the node of c first"}
    assert any("whether the binding alerts -> c exists" in one.message for one in findings)

    made = plan(wanted, live)
    (refusal,) = made.refused(allow_moved=1.0, allow_delete=True, allow_loss=True)
    assert str(refusal) == (
        "queue c is down: until its node runs, RabbitMQ 3.10.8 (mnesia) lists none of its bindings, and changes nothing of it; wait until its "
        "node runs"
    )
    gone = plan(replace(ring_file("a", "b"), queues=(), owns=("c",)), live)
    assert refusal in gone.refused(allow_moved=1.0, allow_delete=True, allow_loss=True)


def test_from_4_0_on_the_bindings_of_a_queue_that_is_down_are_listed() -> None:
    """So one that is not listed was removed, and is bound again."""
    site = recorded_site(Release("4.0.5"), "a", "b", "c")
    site.model.unbind(BindingDefinition("x", "c", "1"))
    live = WithoutNode(site.model, has_source=True).live()
    assert "another program unbound c=1" in check(live).findings[0].message
    made = plan(ring_file("a", "b", "c"), live)
    assert [change.action for change in made.changes] == ["bind"]
    assert not made.refused(allow_moved=1.0)


def test_the_mark_is_made_again_only_for_a_new_record_after_a_restart() -> None:
    """The other record keeps its stamp: with Khepri it holds after the restart, with Mnesia it is void."""
    for release, provenance in ((NEWEST, "recorded"), (Release("3.10.8"), None)):
        wanted = ring_file("b", "a")
        (exchange,) = wanted.exchanges
        wanted = replace(wanted, exchanges=(exchange, replace(exchange, name="y")))
        site = Site.holding(wanted, release)
        marks = [site.model.mark]
        client = site.client(has_source=True)
        record_rings(client.live().rings, client)
        marks.append(site.model.mark)
        site.model.mark_messages = 1
        record_rings({"x": client.live().rings["x"]}, client)
        marks.append(site.model.mark)
        assert marks[0] == marks[1]
        assert marks[1] != marks[2]
        assert site.model.mark_messages == 2
        rings = site.client().live().rings
        assert (rings["x"].provenance, rings["y"].provenance) == ("recorded", provenance)


def test_a_mark_that_loses_its_messages_is_named_with_the_policy() -> None:
    site = recorded_site(NEWEST, "b", "a")
    site.model.policies["short"] = PolicyDefinition("short", "mark", "queues", {"message-ttl": 5})
    site.model.mark_messages = 0
    assert "because of policy short (message-ttl): " in ring_of(site).order.doubt


def test_where_the_mark_loses_its_messages_a_plan_is_applied_without_records() -> None:
    """No record of a former ring is left, which nothing would prove."""
    site = recorded_site(NEWEST, "b", "a")
    site.model.policies["short"] = PolicyDefinition("short", ".*", definition={"max-length": 1})
    site.model.mark_messages = 1
    client = site.client()
    (note,) = client.applied(plan(ring_file("b"), client.live()), ALL).unrecorded
    assert note.endswith("keeps 1 of its 2 messages, because of policy short (max-length)")
    assert site.model.rings["x"].buckets == ("b",)
    assert not evidence_of(client.live()).records


def test_where_a_record_is_not_taken_no_former_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that another program has changed what this apply changes."""
    site = recorded_site(NEWEST, "b", "a")
    client = site.client()
    perform = client.perform

    def refuse_records(operation: Operation) -> None:
        if operation.action == "declare" and is_record(operation):
            raise errors.MismatchError("it has another type")
        perform(operation)

    monkeypatch.setattr(client, "perform", refuse_records)
    monkeypatch.setattr(client, "perform_together", lambda _: False)
    (note,) = client.applied(plan(ring_file("b"), client.live()), ALL).unrecorded
    assert note.endswith("it has another type")
    assert site.model.rings["x"].buckets == ("b",)
    assert not evidence_of(client.live()).records


def test_who_may_not_count_the_mark_deletes_no_record_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    site = recorded_site(NEWEST, "b", "a")
    records = evidence_of(site.client().live()).records
    with monkeypatch.context() as patch:
        patch.setattr(
            ModelClient, "count", Mock(side_effect=errors.AccessRefusedError("no read", reply_code=403))
        )
        client = site.client(has_source=True)
        with pytest.raises(errors.AccessRefusedError, match="no read; the records of x cannot be updated"):
            client.applied(plan(ring_file("b"), client.live()), ALL)
        down = errors.UnreachableError("home node n2 is down: wait until that node is up", reply_code=404)
        patch.setattr(ModelClient, "count", Mock(side_effect=down))
        client = site.client(has_source=True)
        with pytest.raises(errors.UnreachableError, match=r"n2 is down.*nothing was changed") as caught:
            client.applied(plan(ring_file("b"), client.live()), ALL)
        assert "let a user" not in str(caught.value), "permissions are not what is missing"
    assert site.model.rings["x"].buckets == ("b", "a")
    assert evidence_of(site.client().live()).records == records


def test_who_may_not_declare_records_applies_without_them_and_replaces_none() -> None:
    model = ModelBroker(NEWEST)
    client = ModelClient(model, refuses=is_record)
    (note,) = client.applied(plan(ring_file("b", "a"), client.live()), ALL).unrecorded
    assert note.startswith("the order of the rings is not recorded on the broker")
    assert model.rings["x"].buckets == ("b", "a")
    site = recorded_site(NEWEST, "b", "a")
    client = site.client(refuses=is_record)
    with pytest.raises(errors.AccessRefusedError, match="cannot be updated, so nothing was changed"):
        client.applied(plan(ring_file("b"), client.live()), ALL)
    assert site.model.rings["x"].buckets == ("b", "a")
    client = site.client()
    client.applied(plan(ring_file("b"), client.live()), replace(ALL, records=False))
    assert ring_of(site).provenance is None
    assert not evidence_of(client.live()).records


def test_who_may_declare_only_some_names_of_records_changes_nothing_or_applies_without_records() -> None:
    """Each name is tried before the first change."""

    def refuses(operation: Operation) -> bool:
        return operation.subject.name == record_name("x")

    site = recorded_site(NEWEST, "b", "a")
    before = site.client().live()
    client = site.client(refuses=refuses)
    with pytest.raises(errors.AccessRefusedError, match="cannot be updated, so nothing was changed"):
        client.applied(plan(ring_file("b"), before), ALL)
    assert site.client().live() == before
    assert evidence_of(site.client().live()).records == evidence_of(before).records
    new = Site(ModelBroker(NEWEST))
    client = new.client(refuses=refuses)
    (note,) = client.applied(plan(ring_file("b", "a"), client.live()), ALL).unrecorded
    assert "configure" in note
    assert new.model.rings["x"].buckets == ("b", "a")
    assert not evidence_of(client.live()).records


def test_a_ring_whose_record_does_not_fit_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "record_arguments", lambda *_: None)
    client = ModelClient(ModelBroker(NEWEST))
    (note,) = client.applied(plan(ring_file("b", "a"), client.live()), ALL).unrecorded
    assert note.startswith("the record of the ring of x does not fit into a frame")


@pytest.mark.parametrize(
    ("file", "refused", "ring"),
    [
        (("b", "a", "c"), ("bind", "c"), ("b", "a")),
        (("a", "c"), ("delete", "b"), ("a", "c")),
        (("c", "a"), ("bind", "a"), None),
    ],
    ids=["no step is done", "all are done", "some are done"],
)
def test_after_a_refusal_a_ring_is_known_unless_some_of_its_steps_are_done(
    file: tuple[str, ...], refused: tuple[str, str], ring: tuple[str, ...] | None
) -> None:
    site = recorded_site(NEWEST, "b", "a")
    wanted = ring_file(*file)
    if refused[0] == "delete":
        queues = tuple(queue for queue in wanted.queues if queue.name != "b")
        wanted = replace(wanted, queues=queues, owns=("*",))
    action, place = refused

    def refuses(done: Operation) -> bool:
        subject = done.subject
        name = subject.destination if isinstance(subject, BindingDefinition) else subject.name
        return (done.action, name) == (action, place) and is_asked[0]

    is_asked = [True]
    client = site.client(refuses=refuses)
    made = plan(wanted, client.live())
    with pytest.raises(errors.RabbitChxError, match="the permission is missing"):
        client.applied(made, ALL)
    assert (ring_of(site).buckets if ring_of(site).order.is_certain else None) == ring
    site.compare()
    is_asked[0] = False
    assert plan(wanted, site.client().live()).checksum == made.checksum
    assert site.apply(wanted, site.client())
    assert site.model.rings["x"].buckets == file


def is_record(operation: Operation) -> bool:
    """Return True for the declaration or deletion of a record."""
    return isinstance(operation.subject, ExchangeDefinition) and is_own(operation.subject.name)


@pytest.mark.extended
def test_the_history_that_was_ambiguous_before() -> None:
    """Two exchanges, one of which is an alternate exchange; the apply ends before its operation 12."""
    f = ExchangeDefinition("f", "fanout")

    def rings(*members: str) -> ExchangeDefinition:
        (exchange,) = ring_file(*members).exchanges
        return replace(exchange, ring=(*(exchange.ring or ()), RingMember(ExchangeRef("f"))))

    y = ExchangeDefinition("y", "x-consistent-hash", arguments={"alternate-exchange": "f"}, ring=())
    quorum = tuple(QueueDefinition(name, "quorum") for name in NAMES)
    old = Topology((f, rings("c", "b=2", "a", "d", "e")), (QueueDefinition("a"), *quorum[1:]))
    new = Topology((f, rings("b=2", "a", "c", "d", "e=2"), y), quorum)
    before, has_ended = 0, False
    while not has_ended:
        site = Site.holding(old, NEWEST)
        has_ended = site.apply(new, site.client(before))
        site.compare()
        assert site.apply(new, site.client())
        assert not site.doubts
        before += 1


@pytest.mark.parametrize(("old", "new"), [("abcd", "dcba"), ("abcde", "cdeab")])
def test_an_order_with_the_same_bindings_is_never_mistaken(old: str, new: str) -> None:
    """The apply ends at each operation; then the old file is applied, or the new one again."""
    before, has_ended = 0, False
    while not has_ended:
        for target in (old, new):
            site = recorded_site(NEWEST, *old)
            has_ended = site.apply(ring_file(*new), site.client(before))
            assert site.apply(ring_file(*target), site.client())
            assert not site.doubts
            assert site.model.rings["x"].buckets == tuple(target)
        before += 1


@pytest.mark.parametrize("becomes_ring", [True, False])
def test_an_exchange_of_another_type_has_a_final_record_exactly_if_it_has_a_ring(
    *, becomes_ring: bool
) -> None:
    ring = ring_file("a", "b", "c")
    modulus = replace(
        ring,
        exchanges=(ExchangeDefinition("x", "x-modulus-hash"),),
        bindings=tuple(BindingDefinition("x", name) for name in "abc"),
    )
    old, new = (modulus, ring) if becomes_ring else (ring, modulus)
    site = Site.holding(old, NEWEST)
    client = site.client(has_source=True)

    applied = client.applied(plan(new, client.live()), ALL)

    live = site.client().live()
    assert [*applied.rings] == ["x"] * becomes_ring
    assert [*evidence_of(live).records] == ["x"] * becomes_ring
    assert not site.doubts
    if becomes_ring:
        assert applied.rings["x"].buckets == live.rings["x"].buckets == ("a", "b", "c")


RESUMED = [
    ("abc", "bca", NEWEST),
    ("abcd", "db", Release("3.10.8")),
    ("abc", "cad", Release("3.10.5")),
]


def limited_file(ring: str, *, limit: float | None = None, queues: str = "abcd") -> Topology:
    """Return a file with a ring of some queues."""
    exchange = ExchangeDefinition(
        "x", "x-consistent-hash", ring=tuple(map(RingMember, ring)), max_share_moved=limit
    )
    return Topology((exchange,), tuple(map(QueueDefinition, queues)))


@pytest.mark.parametrize(("before", "after", "release"), RESUMED)
@pytest.mark.parametrize("has_source", [True, False])
def test_a_second_run_repeats_the_first_one_and_counts_from_before_it(
    before: str, after: str, release: Release, *, has_source: bool
) -> None:
    """The limit is exactly what the first run moves at its worst moment. It dies before each of its operations."""
    first = plan(
        limited_file(after, queues="abcde"), Site.holding(limited_file(before), release).client().live()
    )
    wanted = limited_file(after, limit=first.rings["x"].moved_at_worst, queues="abcde")
    for dies_before in count():
        site = Site.holding(limited_file(before), release)
        reviewed = plan(wanted, site.client(has_source=has_source).live())
        assert not reviewed.refusals
        if site.apply(wanted, site.client(dies_before, has_source=has_source), Permission()):
            break
        client = site.client(has_source=has_source)
        again = plan(wanted, client.live())
        assert again.checksum == reviewed.checksum
        assert not again.refusals
        if again.changes and ring_of(site).provenance is None:
            assert "from its first step" in str(again)
            assert again.rings["x"].moments == reviewed.rings["x"].moments
            assert again.rings["x"].matrix() == reviewed.rings["x"].matrix()
            assert {*again.changes} <= {*reviewed.changes}
        assert client.applied(reviewed, Permission()).changes == again.changes
        assert evidence_of(site.client().live()).pending is None
        assert (
            site.client().live().rings["x"].buckets == HashRing.from_bindings([(q, 1) for q in after]).buckets
        )


def test_an_apply_is_repeated_after_an_update_of_the_broker() -> None:
    wanted, repeated = limited_file("abce", queues="abcdef"), 0
    for dies_before in count():
        site = Site.holding(limited_file("abcd"), Release("4.3.5"))
        if site.apply(wanted, site.client(dies_before)):
            break
        site.model.release = NEWEST
        site.model.rings = {name: replace(ring, release=NEWEST) for name, ring in site.model.rings.items()}
        again = plan(wanted, site.client().live())
        assert not again.refusals
        repeated += bool(again.resumes)
        site.client().applied(again, ALL)
        assert site.model.rings["x"].buckets == tuple("abce")
    assert repeated


def test_a_plan_of_one_change_that_is_done_has_its_checksum() -> None:
    wanted, done = limited_file("abc", queues="abcde"), 0
    for dies_before in count():
        site = Site.holding(limited_file("abc"), NEWEST)
        reviewed = plan(wanted, site.client().live())
        assert len(reviewed.changes) == 1
        if site.apply(wanted, site.client(dies_before), Permission()):
            break
        again = plan(wanted, site.client().live())
        assert again.checksum == reviewed.checksum
        if not again.changes:
            assert again.resumes
            done += 1
        assert site.client().applied(reviewed, Permission()).changes == again.changes
    assert done


@pytest.mark.parametrize("frame_max", [1_500, 131_072])
def test_an_apply_that_cannot_be_resumed_says_so_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, frame_max: int
) -> None:
    """A frame is too small for the text of many changes, as 131,072 bytes are for that of thousands."""
    names = [f"queue.{number}.{number * 7919 % 10007}" for number in range(300)]
    monkeypatch.setattr(ModelClient, "frame_max", frame_max)
    site, said = Site.holding(Topology(), NEWEST), list[str]()
    wanted = Topology((), tuple(map(QueueDefinition, names)))
    made = plan(wanted, site.client().live())
    planned = why_not_resumable(made, site.client().live())
    apply_plan(made, site.client(), Permission(), lambda *_: None, said.append)
    assert ([planned] if planned else []) == said
    says = "300 changes do not fit into a frame of 1,500 bytes (frame_max): after an interruption, "
    assert [line.startswith(says) for line in said] == ([True] if frame_max == 1_500 else [])


def interrupted(wanted: Topology) -> Site:
    """Return a model whose apply died after a first change."""
    for dies_before in count():
        site = Site.holding(limited_file("abc"), NEWEST)
        site.apply(wanted, site.client(dies_before))
        if {*site.model.rings["x"].buckets} != {*"abc"}:
            break
    return site


def test_another_file_is_planned_from_the_ring_as_it_is_and_says_what_it_gives_up() -> None:
    wanted, other = limited_file("cab"), limited_file("ab")
    site = interrupted(wanted)
    live = site.client().live()
    made = plan(other, live)
    fresh = plan(other, as_live(live, pending=None))
    assert (made.changes, made.checksum, made.rings, made.resumes) == (
        fresh.changes,
        fresh.checksum,
        fresh.rings,
        "",
    )
    (warning,) = {*made.warnings} - {*fresh.warnings}
    assert re.fullmatch(
        r"the apply of .* by .* has not ended, and this plan gives up what that has left.*", warning
    )
    assert site.apply(other, site.client())
    assert evidence_of(site.client().live()).pending is None
    assert not plan(wanted, site.client().live()).resumes


def test_what_others_change_meanwhile_is_not_resumed() -> None:
    """A change that nobody has reviewed needs another checksum."""
    wanted = replace(limited_file("bca"), owns=("*",))
    reviewed = plan(wanted, Site.holding(limited_file("abc"), NEWEST).client().live())
    site = interrupted(wanted)
    site.model.create(QueueDefinition("new"))
    again = plan(wanted, site.client().live())
    assert "delete queue new" in map(str, again.changes)
    assert again.checksum != reviewed.checksum
    assert not again.resumes
    assert any("gives up" in warning for warning in again.warnings)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"format": "rabbit-chx/apply", "format_version": 2},
        {"format": "rabbit-chx/apply", "format_version": 3, "encoding": "zlib", "content": "eJwDAAAAAAE="},
    ],
)
def test_a_pending_apply_that_cannot_be_read_is_none(arguments: dict[str, Any]) -> None:
    site = Site.holding(limited_file("abc"), NEWEST)
    site.model.create(ExchangeDefinition("rabbit-chx.apply", "fanout", internal=True, arguments=arguments))
    live = site.client().live()
    assert evidence_of(live).pending is None
    assert live.exchange("rabbit-chx.apply") is None
    assert site.apply(limited_file("bca"), site.client())
    assert "rabbit-chx.apply" not in site.model.exchanges


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_replacement_of_which_the_deletion_is_done_is_repeated(kind: str) -> None:
    wanted = limited_file("bca")
    if kind == "queue":
        queues = tuple(replace(each, arguments={"x-max-length": 5}) for each in wanted.queues)
        wanted = replace(wanted, queues=queues)
    else:
        exchanges = tuple(replace(each, arguments={"hash-header": "h"}) for each in wanted.exchanges)
        wanted = replace(wanted, exchanges=exchanges)
    for dies_before in count():
        site = Site.holding(limited_file("abc"), NEWEST)
        reviewed = plan(wanted, site.client().live())
        if site.apply(wanted, site.client(dies_before), ALL):
            break
        again = plan(wanted, site.client().live())
        assert again.checksum == reviewed.checksum
        if again.changes:
            assert again.rings["x"].moments == reviewed.rings["x"].moments
        assert site.apply(wanted, site.client())
        assert site.model.rings["x"].buckets == ("b", "c", "a")
        assert not plan(wanted, site.client().live()).changes
