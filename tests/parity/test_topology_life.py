"""The life of a topology on a real broker: what test_topology_life.py of the unit tests does on one made of values, some lives of it.

A broker that restarts is in test_topology_faults.py and test_restarts.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from changed_site import ChangedSite, changed_site
from dying_applier import DyingApplier, dying_applier
from few_seeds import few_seeds
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from topology_machine import OWNED, TopologyMachine, led

from rabbit_chx import HashRing, Topology
from rabbit_chx.broker.applying import Applied
from rabbit_chx.errors import NotFoundError
from rabbit_chx.topology import BindingDefinition, LiveTopology, Plan
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

_LIVES, _STEPS = 6, 8
_KEYS = [f"key {n}" for n in range(6)]


class RealStage:
    """A vhost of a real broker."""

    def __init__(self, site: ChangedSite, applier: DyingApplier, seen: Counter[str]) -> None:
        self._site, self._applier, self._seen = site, applier, seen

    def live(self) -> LiveTopology:
        return self._site.live()

    def apply(self, made: Plan) -> Applied:
        done = self._site.apply(made, allow_loss=True)
        self._seen["applied"] += 1
        self._seen["changes"] += len(done.changes)
        self._seen["slots handed over"] += len(done.handed_over)
        return done

    def dies(self, made: Plan, before: int) -> bool:
        self._seen["dying"] += 1
        died = self._applier.killed(made.wanted, before)
        self._seen["killed"] += died
        self._site.wait_until_unlocked()
        return died

    def bind(self, binding: BindingDefinition) -> None:
        assert isinstance(binding.destination, str)
        self._site.channel.queue_bind(binding.destination, binding.source, binding.routing_key)

    def unbind(self, binding: BindingDefinition) -> None:
        arguments = dict(binding.arguments)
        if isinstance(binding.destination, str):
            self._site.channel.queue_unbind(
                binding.destination, binding.source, binding.routing_key, arguments
            )
        else:
            self._site.channel.exchange_unbind(
                binding.destination.name, binding.source, binding.routing_key, arguments
            )

    def check_routes(self, live: LiveTopology) -> None:
        """A message for each of some keys is in the queue that the ring names; what is behind an exchange is looked at by others."""
        channel = self._site.channel
        queues = [queue.name for queue in live.queues]
        for name, ring in live.rings.items():
            queue_ring = HashRing.from_buckets(led(live, name), ring.release)
            for key in _KEYS if ring.bucket_count else ():
                expected = queue_ring.destination_for(key)
                if not isinstance(expected, str) or expected.startswith("theirs"):
                    continue
                channel.queue_purge(expected)
                channel.basic_publish(name, key, b"", mandatory=True)
                assert channel.queue_declare(expected, passive=True).method.message_count == 1
                self._seen["messages"] += 1
        for queue in queues:
            channel.queue_purge(queue)

    def check(self) -> None:
        self._site.check_theirs()


@pytest.fixture
def site(rabbit: Rabbit) -> Iterator[ChangedSite]:
    with few_seeds(), changed_site(rabbit.broker) as made:
        made.channel.confirm_delivery()
        yield made


def test_messages_follow_the_predicted_rings_in_any_life_of_a_topology(
    rabbit: Rabbit, site: ChangedSite
) -> None:
    seen: Counter[str] = Counter()

    with dying_applier(site) as applier:

        class TopologyLife(TopologyMachine):
            def __init__(self) -> None:
                super().__init__()
                self.stage = RealStage(site, applier, seen)

            def teardown(self) -> None:
                site.apply(Topology(owns=OWNED), allow_loss=True)
                with suppress(NotFoundError):  # what a killed apply left: another life does not resume it
                    site.request("DELETE", "exchanges", "rabbit-chx.apply")

        run_state_machine_as_test(
            TopologyLife,
            settings=settings(
                max_examples=_LIVES,
                stateful_step_count=_STEPS,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=[
                    HealthCheck.too_slow,
                    HealthCheck.filter_too_much,
                    HealthCheck.data_too_large,
                ],
            ),
        )
    assert seen["killed"] >= 3
    assert seen["messages"] > 0
    rabbit.count(seen["messages"])
    rabbit.note(
        f"{_LIVES} lives of a topology: {', '.join(f'{count} {what}' for what, count in seen.items())}"
    )
