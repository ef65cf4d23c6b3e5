"""Whatever happens to a broker and to those who apply plans to it, the next application ends at what is wanted.

Messages are published before each operation. None is lost but where the plan says so, and none is doubled.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from model_broker import ModelBroker
from model_client import ClientKilledError
from model_traffic import Mover, Traffic
from topology_machine import TopologyMachine, ours

from rabbit_chx.broker.applying import Applied, Permission
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology import BindingDefinition, LiveTopology, Plan, QueueDefinition

_THEIRS = QueueDefinition("theirs", arguments={"n": 1})
_ALL = Permission(1.0, delete=True, loss=True)


class ModelStage:
    """A broker made of values, with a queue of somebody else."""

    def __init__(self, release: Release) -> None:
        self.model = ModelBroker(release)
        self.model.create(_THEIRS)
        self.traffic = Traffic(self.model)

    def live(self) -> LiveTopology:
        return Mover(self.traffic).live()

    def apply(self, made: Plan) -> Applied:
        return self._applied(made, None)

    def dies(self, made: Plan, before: int) -> bool:
        try:
            self._applied(made, before)
        except ClientKilledError:
            return True
        return False

    def _applied(self, made: Plan, dies_before: int | None) -> Applied:
        """Apply a plan, and look at what became of the messages meanwhile."""
        losing, lost, deleted = (
            self.traffic.losing(), self.traffic.lost.copy(), self.traffic.deleted_parked.copy(),
        )  # fmt: skip
        try:
            return Mover(self.traffic, dies_before).apply(made, _ALL)
        finally:
            for name, count in (self.traffic.lost - lost).items():
                assert count == 0 or name in losing or made.rings[name].lost_at_worst > 0, name
            for name in self.traffic.deleted_parked - deleted:
                assert made.wanted.exchange(name) is None, f"{name} stays, and what was parked for it is gone"

    def bind(self, binding: BindingDefinition) -> None:
        if binding not in self.model.bindings:
            self.model.bind(binding)

    def unbind(self, binding: BindingDefinition) -> None:
        self.model.unbind(binding)

    def restart(self, order: Any, lost: str | None) -> None:
        """On Mnesia rings are made again. On Khepri the buckets of a queue that was exclusive stay."""
        if self.model.release.follows(RESTART_KEEPS):
            if lost is not None:
                self.model.lose(lost)
                self.traffic.delete(lost)
            return
        for name in self.model.rings:
            bound = [binding for binding in self.model.bindings if binding.source == name]
            order.shuffle(bound)
            bindings = [(binding.destination, binding.routing_key) for binding in bound]
            self.model.rings[name] = HashRing.from_bindings(bindings, self.model.release)

    def check_routes(self, live: LiveTopology) -> None:
        assert {name: ring.buckets for name, ring in live.rings.items()} == {
            name: ring.buckets for name, ring in self.model.rings.items()
        }

        assert not self.traffic.parked()

    def check(self) -> None:
        assert self.model.queues["theirs"] == _THEIRS
        self.traffic.check()


class TopologyLife(TopologyMachine):
    """On a broker made of values, which restarts too."""

    stage: ModelStage

    @initialize(release=st.sampled_from(["4.3.6", "4.0.5", "3.10.8"]))
    def start(self, release: str) -> None:
        """Begin with a broker of a release."""
        self.stage = ModelStage(Release(release))

    @rule(order=st.randoms(use_true_random=False), data=st.data(), lost=st.booleans())
    def restart(self, order: Any, data: Any, lost: bool) -> None:  # noqa: FBT001  # hypothesis gives it
        """The broker restarts: where the store is Mnesia, it makes its rings again, in any order; elsewhere a queue may leave a ghost."""
        queues = ours(queue.name for queue in self.stage.live().queues)
        self.stage.restart(order, data.draw(st.sampled_from(queues)) if lost and queues else None)


_SETTINGS = settings(
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class ManyTopologyLives(TopologyLife):
    """The same machine for `make long WHAT=slow`, which runs it more often."""


TestTopologyLife = TopologyLife.TestCase
TestTopologyLife.settings = settings(_SETTINGS, max_examples=15)
TestManyTopologyLives = pytest.mark.slow(ManyTopologyLives.TestCase)
TestManyTopologyLives.settings = settings(_SETTINGS, max_examples=100)
