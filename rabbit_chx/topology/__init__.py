"""Topology files and live topologies: model, plan, apply and check. No I/O, no client."""

from __future__ import annotations

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.topology.applying import Applied
from rabbit_chx.topology.arguments import ArgumentTable
from rabbit_chx.topology.balance import LoadTarget, QueueLoad, SlotBalance, SlotMove, balance
from rabbit_chx.topology.changes import FieldChange, PlannedChange
from rabbit_chx.topology.check import TopologyCheck, check
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.plan import Plan, arranged, plan
from rabbit_chx.topology.proposals import RingProposal
from rabbit_chx.topology.repair import repair_target
from rabbit_chx.topology.ring_plan import RingPlan
from rabbit_chx.topology.shards import Shard, ShardedExchange

__all__ = [
    "Applied",
    "ArgumentTable",
    "BindingDefinition",
    "ExchangeDefinition",
    "FieldChange",
    "Finding",
    "LoadTarget",
    "Plan",
    "PlannedChange",
    "PolicyDefinition",
    "QueueDefinition",
    "QueueLoad",
    "RingMember",
    "RingPlan",
    "RingProposal",
    "Shard",
    "ShardedExchange",
    "SlotBalance",
    "SlotMove",
    "Topology",
    "TopologyCheck",
    "arranged",
    "balance",
    "check",
    "plan",
    "repair_target",
]
