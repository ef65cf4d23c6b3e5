"""Findings about the dead-letter exchanges of the queues of an exchange that hashes, and about its alternate exchange.

A queue publishes a message that is rejected, that expires or that exceeds a limit to its dead-letter exchange. If that does not exist, or has
no binding, the message is dropped without an error (rabbitmq-server ``rabbit_dead_letter.erl``, ``publish/5``, v4.3.6); with the strategy
``at-least-once`` it stays in the quorum queue (``rabbit_fifo_dlx_worker.erl``). Where messages go behind an exchange with bindings is not followed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, ExchangeDefinition
from rabbit_chx.topology.rules.policies import QueueSetting
from rabbit_chx.topology.rules.reach import Reach

_EXCHANGE = "x-dead-letter-exchange"
_STRATEGY = "x-dead-letter-strategy"
#: The types of queues that have dead letters.
_DYING_TYPES = ("classic", "quorum")


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of the queues of a broker, or of a file as one.

    Attributes:
        is_file: True for a file: what is neither in it nor external there does not exist.
    """

    live: LiveTopology
    reach: Reach
    is_file: bool = False

    @classmethod
    def of_file(cls, topology: Topology) -> DeadLetters:
        """Return those of a file. Exchanges that others declare have bindings that it does not show."""
        unlisted = [place.name for place in topology.unlisted if isinstance(place, ExchangeRef)]
        external = [exchange.name for exchange in topology.exchanges if exchange.owner == "external"]
        live = LiveTopology.of_file(topology)
        open_ = live.sources_left_out.union(unlisted, external)
        exchanges = (*live.exchanges, *map(ExchangeDefinition, unlisted))
        live = replace(live, exchanges=exchanges, facts=replace(live.facts, sources_left_out=open_))
        return cls(live, Reach(live), is_file=True)

    def findings_of_file(self) -> Iterator[Finding]:
        """Yield the findings of each exchange of the file that hashes."""
        for exchange in self.live.exchanges:
            if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE):
                members = (member.destination for member in exchange.ring or exchange.members or ())
                bound = (each.destination for each in self.live.bindings if each.source == exchange.name)
                queues = {place for place in (*members, *bound) if isinstance(place, str)}
                yield from self.findings(exchange, queues)

    def findings(self, exchange: ExchangeDefinition, queues: Collection[str]) -> Iterator[Finding]:
        """Yield a finding if the alternate exchange of an exchange, or the dead-letter exchange of one of its queues, gets messages and drops all.

        Args:
            exchange: the exchange.
            queues: its queues.
        """
        name = exchange.name
        alternate = self.reach.alternate_of(exchange)
        if alternate and (fault := self._fault_of(alternate)):
            message = (
                f"the alternate exchange of {name} is {alternate}, {fault}: messages that {name} routes to no queue are lost, or "
                "returned if they are mandatory"
            )
            fix = f"{self._remedy_for(alternate)}, or correct the alternate exchange of {name}"
            yield Finding("alternate", message, fix, exchange=name)
        for queue in self.live.queues:
            if queue.name not in queues or queue.type not in _DYING_TYPES:
                continue
            setting = self.live.setting(queue, _EXCHANGE)
            onwards = _text_of(setting)
            if onwards and setting is not None and (fault := self._fault_of(onwards)):
                by = f" by the {setting.policy}" if setting.policy else ""
                message = f"{queue.name} publishes dead letters to the dead-letter exchange {onwards}{by}, {fault}: "
                is_kept = (
                    queue.type == "quorum"
                    and _text_of(self.live.setting(queue, _STRATEGY)) == "at-least-once"
                )
                lost = "they are lost without an error"
                lost += ", or stay in it if its overflow is reject-publish" if is_kept else ""
                where = f"in the {setting.policy}" if setting.policy else f"of {queue.name}"
                argument = _EXCHANGE.removeprefix("x-") if setting.policy else _EXCHANGE
                fix = f"{self._remedy_for(onwards)}, or correct {argument} {where}"
                yield Finding("dead-letter", message + lost, fix, exchange=name, destination=queue.name)

    def _fault_of(self, exchange: str) -> str:
        """Return the clause about an exchange that does not exist, or has no binding; empty for others."""
        if not self.reach.exists(ExchangeRef(exchange)):
            meant = similar(exchange, [each.name for each in self.live.exchanges])
            lacks = "which the file does not have" if self.is_file else "which does not exist"
            return f"{lacks} (did you mean {meant}?)" if meant else lacks
        definition = self.live.exchange(exchange)
        has_alternate = definition is not None and self.reach.alternate_of(definition)
        return "" if self.reach.has_bindings(exchange) or has_alternate else "which has no binding"

    def _remedy_for(self, exchange: str) -> str:
        if self.reach.exists(ExchangeRef(exchange)):
            return f"bind a queue to {exchange}"
        if self.is_file:
            return f"add an exchange {exchange} to the file, external if others declare it"
        return f"declare an exchange {exchange}"


def _text_of(setting: QueueSetting | None) -> str | None:
    return setting.value if setting is not None and isinstance(setting.value, str) else None
