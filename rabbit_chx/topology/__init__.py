"""What a vhost has, by a topology file, a definitions file or a broker, as values. No I/O, no client.

The names of what is done with them come from the packages above, which are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy
from rabbit_chx.topology.model import BrokerFacts, Imported, LiveTopology, Topology
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)

if TYPE_CHECKING:
    from rabbit_chx.checking.check import TopologyCheck, check
    from rabbit_chx.planning.diff import Difference, diff
    from rabbit_chx.planning.plan import arrange, healed, plan
    from rabbit_chx.planning.plan_value import Plan

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
    "check",
    "diff",
    "healed",
    "plan",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "rabbit_chx.checking.check": ("TopologyCheck", "check"),
        "rabbit_chx.planning.diff": ("Difference", "diff"),
        "rabbit_chx.planning.plan": ("arrange", "healed", "plan"),
        "rabbit_chx.planning.plan_value": ("Plan",),
    },
)
