"""The life of a topology: a state machine, which plans, applies, dies, checks, repairs and hands slots over in any order.

It runs on a broker made of values and on real ones. A `Stage` is what differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from declared_topologies import declared_topologies
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rabbit_chx import ExchangeRef, HashRing, Topology
from rabbit_chx.broker.applying import Applied
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import BindingDefinition, LiveTopology, Plan, check, healed, plan

_CHX = "x-consistent-hash"
OWNED = ("q*", "x*", "hash*", "p*", "events*")
_WRONG_RING = {"ghost-bucket", "hole", "order", "second-binding", "silent-binding"}
_WRONG = {*_WRONG_RING, "missing", "different"}


class Stage(Protocol):
    """A broker."""

    def live(self) -> LiveTopology:
        """Return what is there."""

    def apply(self, made: Plan) -> Applied:
        """Apply a plan; everything is allowed."""

    def dies(self, made: Plan, before: int) -> bool:
        """Apply a plan, and die before an operation; return whether it came to that one."""

    def bind(self, binding: BindingDefinition) -> None:
        """Bind, as somebody else does."""

    def unbind(self, binding: BindingDefinition) -> None:
        """Unbind, as somebody else does."""

    def check_routes(self, live: LiveTopology) -> None:
        """Messages go where the rings that were read say."""

    def check(self) -> None:
        """What nobody changes is as it was."""


@st.composite
def slotted_topologies(draw: st.DrawFn) -> Topology:
    """Return a topology of one exchange, with slots or with its queues in the ring. Queues may have several slots, or none."""
    queues = draw(st.lists(st.sampled_from([f"q{n}" for n in range(4)]), unique=True, min_size=1))
    weights = [draw(st.integers(1, 2)) for _ in queues]
    members = ", ".join(
        f'{{ queue = "{queue}", weight = {weight} }}' for queue, weight in zip(queues, weights, strict=True)
    )
    slots = draw(st.sampled_from([8, 12, None]))
    layout = f"ring = [{members}]" if slots is None else f"slots = {slots}\nmembers = [{members}]"
    text = f'[[exchanges]]\nname = "events"\ntype = "{_CHX}"\n{layout}\n[[queues]]\nname = "q{{0..3}}"\n'
    return replace(Topology.from_toml(text), owns=OWNED)


_RINGS = declared_topologies(owns=OWNED).filter(
    lambda wanted: any(exchange.ring for exchange in wanted.exchanges)
)
#: What is wanted from now on; None: what was wanted before.
_OTHERS = st.one_of(st.none(), _RINGS, slotted_topologies())
_when_something_was_applied = precondition(lambda machine: bool(machine.wanted.exchanges))


class TopologyMachine(RuleBasedStateMachine):
    """A broker, a topology that is wanted, and what happens to them. A subclass begins with a `stage`."""

    stage: Stage
    wanted = Topology(owns=OWNED)

    @rule(other=_OTHERS)
    def apply(self, other: Topology | None) -> None:
        """An application is done: a second plan is empty, the rings are as planned, and a check finds nothing wrong."""
        self.wanted = other or self.wanted
        made = plan(self.wanted, self.stage.live())
        done = self.stage.apply(made)
        assert done.changes == made.changes
        live = self.stage.live()
        again = plan(self.wanted, live)
        assert (again.changes, again.refusals) == ((), ())
        for name, ring in made.rings.items():
            assert (live.rings[name].buckets if name in live.rings else ()) == ring.after.buckets
        empty = {exchange.name for exchange in live.exchanges if exchange.type == _CHX and not exchange.ring}
        wrong = [finding for finding in check(live, self.wanted).findings if finding.kind in _WRONG]
        assert [finding for finding in wrong if finding.kind != "hole" or finding.exchange not in empty] == []
        self.stage.check_routes(live)
        self.stage.check()

    @rule(other=_OTHERS, before=st.integers(0, 25))
    def die(self, other: Topology | None, before: int) -> None:
        """An application is killed before one of its operations: no more keys have moved than the plan says for the worst moment."""
        self.wanted = other or self.wanted
        made = plan(self.wanted, self.stage.live())
        there = self.stage.live()
        if self.stage.dies(made, before):
            now = self.stage.live()
            for name, ring in made.rings.items():
                was, then = led(there, name), led(now, name)
                # Those of a second run count from before the first one.
                if ring.before.bucket_count and then != was and not made.resumes:
                    assert (
                        HashRing.from_buckets(was).share_moved(HashRing.from_buckets(then))
                        <= ring.moved_at_worst
                    )
        self.stage.check()

    @_when_something_was_applied
    @rule(data=st.data(), bound_before=st.integers(0, 2))
    def repair(self, data: Any, bound_before: int) -> None:
        """A ring is repaired, and is sound then: each bound queue has its buckets."""
        if bound_before:
            self.bind_by_hand(data, bound_before)
        live = self.stage.live()
        rings = [
            name for name in sorted(live.rings) if not _lacks_queues(live, name)
        ]  # which only an application cures
        if not rings:
            return
        name = data.draw(st.sampled_from(rings))
        made = plan(healed(live, name), live)
        if made.refused(allow_moved=1.0, allow_delete=True):
            return
        self.stage.apply(made)
        repaired = self.stage.live()
        kinds = {finding.kind for finding in check(repaired, exchange=name).findings}
        assert kinds & _WRONG_RING <= (set() if repaired.rings[name].buckets else {"hole"})
        assert _bound_to(repaired, name) == _bound_to(live, name)
        self.stage.check()

    @_when_something_was_applied
    @rule(data=st.data(), count=st.integers(1, 3))
    def bind_by_hand(self, data: Any, count: int) -> None:
        """Somebody binds queues to a ring, whether they are bound to it or not. A parking queue in a ring would never be empty."""
        live = self.stage.live()
        rings = ours(live.rings)
        queues = [name for name in ours(queue.name for queue in live.queues) if not name.endswith(".park")]
        if not rings or not queues:
            return
        source = data.draw(st.sampled_from(rings))
        for _ in range(count):
            queue = data.draw(st.sampled_from(queues))
            self.stage.bind(BindingDefinition(source, queue, data.draw(st.sampled_from(["1", "2", "7"]))))

    @_when_something_was_applied
    @rule(data=st.data())
    def unbind_by_hand(self, data: Any) -> None:
        """Somebody unbinds something."""
        if bindings := _all_bindings(self.stage.live()):
            self.stage.unbind(data.draw(st.sampled_from(bindings)))


def ours(names: Iterable[str]) -> list[str]:
    """Return the names that are not somebody else's."""
    return sorted(name for name in names if not name.startswith("theirs"))


def _all_bindings(live: LiveTopology) -> list[BindingDefinition]:
    """Return all bindings that are not somebody else's, those of rings too."""
    of_rings = [
        BindingDefinition(exchange.name, member.destination, member.key, member.arguments)
        for exchange in live.exchanges
        for member in exchange.ring or ()
    ]
    return [binding for binding in (*live.bindings, *of_rings) if not binding.source.startswith("theirs")]


def _bound_to(live: LiveTopology, name: str) -> set[Place]:
    """Return what is bound to a hash exchange."""
    exchange = live.exchange(name)
    return {member.destination for member in (exchange and exchange.ring) or ()}


def _lacks_queues(live: LiveTopology, name: str) -> bool:
    """Return whether a slot of an exchange has no queue: its messages are parked, again and again."""
    return any(
        isinstance(place, ExchangeRef) and place.name.startswith(f"{name}.") for place in led(live, name)
    )


def led(live: LiveTopology, name: str) -> list[Place]:
    """Return where the buckets of an exchange lead to: for a slot of one queue to that queue, without one to its parking exchange."""
    behind: dict[str, list[str]] = {}
    for binding in live.bindings:
        if isinstance(binding.destination, str):
            behind.setdefault(binding.source, []).append(binding.destination)
    parks = {
        exchange.name: ExchangeRef(str(park))
        for exchange in live.exchanges
        if (park := exchange.arguments.get("alternate-exchange")) is not None
    }

    def followed(place: Place) -> Place:
        if not isinstance(place, ExchangeRef) or not place.name.startswith(f"{name}.slot."):
            return place
        queues = behind.get(place.name, [])
        return queues[0] if len(queues) == 1 else parks.get(place.name, place) if not queues else place

    ring = live.rings.get(name)
    return [] if ring is None else [followed(place) for place in ring.buckets]
