"""Topology files and live topologies: model, plan, apply and check. No I/O, no client."""

from __future__ import annotations

from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.planning.diff import diff
from rabbit_chx.planning.difference import Difference
from rabbit_chx.planning.plan import plan
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.targets import arrange, balanced, healed
from rabbit_chx.topology.model import BrokerFacts, Imported, LiveTopology, Topology
from rabbit_chx.topology.objects.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.slots.balance import balance

__all__ = [
    "BindingDefinition",
    "BrokerFacts",
    "Difference",
    "ExchangeDefinition",
    "Imported",
    "LiveTopology",
    "Plan",
    "PolicyDefinition",
    "QueueDefinition",
    "RingMember",
    "Topology",
    "TopologyCheck",
    "arrange",
    "balance",
    "balanced",
    "check",
    "diff",
    "healed",
    "plan",
]
