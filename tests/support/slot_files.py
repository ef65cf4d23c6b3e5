"""Exchanges with slots for tests: files of them, and live topologies that a broker would have."""

from __future__ import annotations

from model_broker import ModelBroker

from rabbit_chx import Release, Topology
from rabbit_chx.topology import LiveTopology, plan

NEWEST = Release("4.3.6")


def slotted(slots: int, members: str, queues: str = "events.{1..4}", more: str = "") -> Topology:
    """Return a topology of one exchange ``events`` with slots.

    Args:
        slots: how many.
        members: the list of members, as a file writes it.
        queues: the names of the queues, with a range.
        more: lines behind.
    """
    return Topology.from_toml(
        f'[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nslots = {slots}\nmembers = {members}\n\n'
        f'[[queues]]\nname = "{queues}"\n\n{more}'
    )


def live_of(wanted: Topology, release: Release = NEWEST) -> LiveTopology:
    """Return what a broker has on which a topology was applied for the first time."""
    return applied(wanted, LiveTopology(), release)


def applied(wanted: Topology, live: LiveTopology, release: Release = NEWEST) -> LiveTopology:
    """Return what a broker has after the plan from a live topology to a wanted one."""
    model = ModelBroker.holding(live, release)
    model.apply(plan(wanted, model.topology()).changes)
    return model.topology()
