"""Findings about dead-letter exchanges and alternate exchanges that lead nowhere.

A queue publishes a message that is rejected, that expires or that exceeds a limit to its dead-letter exchange, with its dead-letter routing key
or else with the routing keys that the message has (rabbitmq-server ``rabbit_dead_letter.erl``, ``publish/5``, v4.3.6). If the exchange does not
exist, or routes the message to no queue, the message is dropped without an error. With the strategy ``at-least-once`` it stays in the quorum
queue (``rabbit_fifo_dlx_worker.erl``).

Only what is certain is reported: `Reach.ends_of` has every queue that a message may reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.rules.policies import QueueSetting
from rabbit_chx.topology.rules.reach import Ends, KeyKnowledge, Keys, Reach, hashes_keys
from rabbit_chx.words import FEW, listed

_EXCHANGE, _KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"
_STRATEGY = "x-dead-letter-strategy"
#: The types of queues that have dead letters.
_DYING_TYPES = ("classic", "quorum")


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of all queues of a broker, or of a file as one.

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

    def findings(
        self, queues: Iterable[QueueDefinition], exchanges: Iterable[ExchangeDefinition]
    ) -> Iterator[Finding]:
        """Yield a finding for each of some queues, and each alternate exchange of some exchanges, whose messages certainly get lost."""
        for exchange in exchanges:
            if found := self._find_alternate(exchange):
                yield Finding("alternate", *found, exchange=exchange.name)
        for queue in queues:
            name = _text_of(self.live.setting(queue, _EXCHANGE)) if queue.type in _DYING_TYPES else None
            if name is not None and (found := _DeadLetters(self, queue, name).find()):
                yield Finding("dead-letter", *found, destination=queue.name)

    def _find_alternate(self, exchange: ExchangeDefinition) -> tuple[str, str] | None:
        name = self.reach.alternate_of(exchange)
        if not name:
            return None
        keys: Keys = KeyKnowledge.MANY if hashes_keys(exchange) else KeyKnowledge.UNKNOWN
        if self.reach.exists(ExchangeRef(name)):
            if self.reach.ends_of(name, keys, after=exchange.name).queues != frozenset():
                return None
            fault, fix = "which leads to no queue", f"bind a queue to {name}"
        else:
            fault, fix = self.why_missing(name), self.how_to_add(f"an exchange {name}")
        message = (
            f"the alternate exchange of {exchange.name} is {name}, {fault}: messages that {exchange.name} routes to no queue are lost, or "
            "returned if they are mandatory"
        )
        return message, f"{fix}, or correct the alternate exchange of {exchange.name}"

    @cached_property
    def _meant(self) -> dict[str, str | None]:
        return {}

    def why_missing(self, exchange: str) -> str:
        """Return the clause about an exchange that does not exist."""
        if exchange not in self._meant:
            self._meant[exchange] = similar(exchange, [each.name for each in self.live.exchanges])
        meant = self._meant[exchange]
        return f"{self.lacks}{f' (did you mean {meant}?)' if meant else ''}"

    @property
    def lacks(self) -> str:
        """The clause about an object that does not exist."""
        return "which the file does not have" if self.is_file else "which does not exist"

    def how_to_add(self, what: str) -> str:
        """Return the remedy for an object that does not exist."""
        return f"add {what} to the file, external if others declare it" if self.is_file else f"declare {what}"


@dataclass(frozen=True)
class _DeadLetters:
    """The dead letters of a queue, which has a dead-letter exchange; that without a name is the default exchange."""

    all: DeadLetters
    queue: QueueDefinition
    exchange: str

    def setting(self, argument: str) -> QueueSetting | None:
        return self.all.live.setting(self.queue, argument)

    @cached_property
    def key(self) -> str | None:
        return _text_of(self.setting(_KEY))

    @cached_property
    def ends(self) -> dict[Keys, Ends]:
        """What they reach, by what is known of their routing keys."""
        keys: set[Keys] = {KeyKnowledge.UNKNOWN}
        if self.key is not None:
            keys = {self.key}
        elif self.queue.owner != "external":  # others bind an external one
            keys = self.all.reach.keys_at(self.queue.name)
        return {key: self.all.reach.ends_of(self.exchange, key) for key in keys}

    def find(self) -> tuple[str, str] | None:
        """Return the fault and its remedy; None if some of them may reach a queue by their own keys."""
        name, lost = self.exchange, self._fate
        if name and not self.all.reach.exists(ExchangeRef(name)):
            add = self.all.how_to_add(f"an exchange {name}")
            return f"{self._where}, {self.all.why_missing(name)}: {lost}", f"{add}, or {self._correction}"
        unrouted = [key for key, end in self.ends.items() if end.queues == frozenset()]
        if unrouted:
            fault, fix = self._find_no_route(sorted(key for key in unrouted if isinstance(key, str)))
            return f"{self._where}{fault}: {lost}", f"{fix}, or {self._correction}"
        hashing = [exchange for end in self.ends.values() for exchange in end.hashing]
        if self.key is None or not hashing:
            return None
        message = (
            f"{self._where} with the routing key {self.key!r}, and {min(hashing)} hashes it: one of its members gets all of them, and their own "
            "keys are gone"
        )
        return (
            message,
            f"take {_KEY.removeprefix('x-')} away from {self.queue.name}, so that they keep their keys",
        )

    def _find_no_route(self, keys: Sequence[str]) -> tuple[str, str]:
        name = self.exchange
        if not name:
            named = f"name of the queue {listed(keys, FEW)}, {self.all.lacks}"
            unnamed = "routing keys that they have, which are no names of queues"
            return f" with the {named if keys else unnamed}", f"set {_KEY} to the name of a queue"
        if self.all.reach.leads_nowhere(name):
            return ", which leads to no queue", f"bind a queue to {name}"
        if keys:
            shown = listed([*map(repr, keys)], FEW)
            return (
                f"which routes the key {shown} to no queue",
                f"bind a queue to {name} with the key {keys[0]!r}",
            )
        fault = ", which passes only the keys of its bindings on, and they keep their routing keys"
        return fault, f"set {_KEY} to a key of its bindings, replace {name} by a fanout exchange"

    @property
    def _where(self) -> str:
        setting = self.setting(_EXCHANGE)
        by = f" by the {setting.policy}" if setting is not None and setting.policy else ""
        named = f"the dead-letter exchange {self.exchange}" if self.exchange else "the default exchange"
        return f"{self.queue.name} publishes dead letters to {named}{by}"

    @property
    def _fate(self) -> str:
        """What becomes of dead letters that reach no queue."""
        if self.queue.type == "quorum" and _text_of(self.setting(_STRATEGY)) == "at-least-once":
            return "they are lost without an error, or stay in it if its overflow is reject-publish"
        return "they are lost without an error"

    @property
    def _correction(self) -> str:
        setting = self.setting(_EXCHANGE)
        if setting is not None and setting.policy:
            return f"correct {_EXCHANGE.removeprefix('x-')} in the {setting.policy}"
        return f"correct {_EXCHANGE} of {self.queue.name}"


def _text_of(setting: QueueSetting | None) -> str | None:
    return setting.value if setting is not None and isinstance(setting.value, str) else None
