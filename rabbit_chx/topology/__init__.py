"""What should be on a broker, and what is there: the model of a topology and its files. No I/O, no client."""

from __future__ import annotations

from rabbit_chx.topology.argument_table import ArgumentTable
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.problems import Problem

__all__ = [
    "ArgumentTable",
    "BindingDefinition",
    "ExchangeDefinition",
    "PolicyDefinition",
    "Problem",
    "QueueDefinition",
    "RingMember",
    "Topology",
]
