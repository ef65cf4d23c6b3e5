"""Whatever happens to a broker and to those who apply plans to it, the next application ends at what is wanted."""

from __future__ import annotations

from typing import Any

from declared_topologies import declared_topologies
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from model_broker import ModelBroker
from model_client import ClientKilledError, ModelClient

from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology import BindingDefinition, QueueDefinition, Topology, plan
from rabbit_chx.topology.applying import Permission, plan_applied
from rabbit_chx.topology.reading import topology_read
from rabbit_chx.topology.steps import Access

ACCESS = Access("amqp://model", "/", has_management=True, has_source=True)
ALL = Permission(1.0, delete=True, loss=True)
OWNED = ("q*", "x*", "hash*", "p*")
THEIRS = QueueDefinition("theirs", arguments={"n": 1})


class Applications(RuleBasedStateMachine):
    """A broker, a topology that is wanted, and what happens."""

    @initialize(release=st.sampled_from(["4.3.6", "4.0.5", "3.10.8"]), wanted=declared_topologies(owns=OWNED))
    def start(self, release: str, wanted: Topology) -> None:
        """A broker with a queue of somebody else."""
        self.model = ModelBroker(Release(release))
        self.model.create(THEIRS)
        self.wanted = wanted

    def live(self) -> Topology:
        """What is there."""
        found: Topology = ModelClient(self.model).run(topology_read(ACCESS))
        return found

    @rule(wanted=declared_topologies(owns=OWNED))
    def want(self, wanted: Topology) -> None:
        """Another topology is wanted."""
        self.wanted = wanted

    @rule(number=st.integers(0, 25))
    def die(self, number: int) -> None:
        """An application is killed before one of its operations."""
        made = plan(self.wanted, self.live())
        try:
            ModelClient(self.model, number).run(plan_applied(made, ACCESS, ALL, lambda *_: None))
        except ClientKilledError:
            for name, ring in made.rings.items():
                now = self.model.rings.get(name, HashRing.from_bindings([], self.model.release))
                if ring.steps and ring.before.bucket_count and now.buckets != ring.before.buckets:
                    assert ring.before.share_moved(now) <= ring.moved_at_worst

    @rule()
    def apply(self) -> None:
        """An application is done: a second plan is empty, and what is somebody else's is as it was."""
        made = plan(self.wanted, self.live())
        done = ModelClient(self.model).run(plan_applied(made, ACCESS, ALL, lambda *_: None))
        assert done.changes == made.changes
        again = plan(self.wanted, self.live())
        assert (again.changes, again.refusals) == ((), ())
        assert self.model.queues["theirs"] == THEIRS

    @precondition(lambda self: self.model.rings)
    @rule(data=st.data(), key=st.sampled_from(["1", "2", "7"]))
    def bind_by_hand(self, data: Any, key: str) -> None:
        """Somebody binds a queue to a ring."""
        source = data.draw(st.sampled_from(sorted(self.model.rings)))
        queue = data.draw(st.sampled_from(sorted(self.model.queues)))
        binding = BindingDefinition(source, queue, key)
        if binding not in self.model.bindings:
            self.model.bind(binding)

    @precondition(lambda self: self.model.bindings)
    @rule(data=st.data())
    def unbind_by_hand(self, data: Any) -> None:
        """Somebody unbinds something."""
        bindings = list(self.model.bindings)
        self.model.unbind(bindings[data.draw(st.integers(0, len(bindings) - 1))])

    @precondition(lambda self: self.model.rings)
    @rule(order=st.randoms(use_true_random=False))
    def restart(self, order: Any) -> None:
        """Where the store is Mnesia, the ring is made again in any order; elsewhere it stays."""
        if self.model.release.follows(RESTART_KEEPS):
            return
        for name in self.model.rings:
            bound = [one for one in self.model.bindings if one.source == name]
            order.shuffle(bound)
            bindings = [(one.destination, one.routing_key) for one in bound]
            self.model.rings[name] = HashRing.from_bindings(bindings, self.model.release)

    @precondition(lambda self: self.model.release.follows(RESTART_KEEPS) and len(self.model.queues) > 1)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        """A queue goes with a restart, and its buckets stay."""
        self.model.lose(data.draw(st.sampled_from(sorted(set(self.model.queues) - {"theirs"}))))


TestApplications = Applications.TestCase
TestApplications.settings = settings(
    max_examples=12,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
