"""Findings about dead-letter exchanges and alternate exchanges that lead nowhere.

A queue publishes a message that is rejected, that expires or that exceeds a limit to its dead-letter exchange, with its dead-letter routing key
or else with the routing keys that the message has (rabbitmq-server ``rabbit_dead_letter.erl``, ``publish/5``, v4.3.6). If the exchange does not
exist, or routes the message to no queue, the message is dropped without an error. With the strategy ``at-least-once`` it stays in the quorum
queue (``rabbit_fifo_dlx_worker.erl``).

A dead letter that comes back to a queue in which it died before is dropped, unless a consumer has rejected it since (``detect_cycles/3``). So
queues in a circle that all have a TTL lose what expires, and those that have none pass what is rejected round for ever. A circle of both is
the usual retry with a delay.

Only what is certain is reported: `Reach.ends_of` has every queue that a message may reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import is_whole, similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.rules.policies import QueueSetting
from rabbit_chx.topology.rules.reach import Ends, KeyKnowledge, Keys, Reach, hashes_keys
from rabbit_chx.words import FEW, listed

_EXCHANGE, _KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"
_OVERFLOW, _TTL = "x-overflow", "x-message-ttl"
_LIMITS = ("x-max-length", "x-max-length-bytes")
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

    @cached_property
    def by_queue(self) -> dict[str, _DeadLetters]:
        """Those of each queue that can have some."""
        return {
            queue.name: _DeadLetters(self, queue) for queue in self.live.queues if queue.type in _DYING_TYPES
        }

    def findings(
        self, queues: Iterable[QueueDefinition], exchanges: Iterable[ExchangeDefinition]
    ) -> Iterator[Finding]:
        """Yield a finding for each of some queues, and each alternate exchange of some exchanges, whose messages certainly get lost."""
        for exchange in exchanges:
            if found := self._find_alternate(exchange):
                yield Finding("alternate", *found, exchange=exchange.name)
        for queue in queues:
            letters = self.by_queue.get(queue.name)
            found = next(filter(None, (rule(letters) for rule in _RULES)), None) if letters else None
            if found is not None:
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
    """The dead letters of a queue."""

    all: DeadLetters
    queue: QueueDefinition

    def setting(self, argument: str) -> QueueSetting | None:
        return self.all.live.setting(self.queue, argument)

    def text(self, argument: str) -> str | None:
        found = self.setting(argument)
        return found.value if found is not None and isinstance(found.value, str) else None

    def has_number(self, *arguments: str) -> bool:
        settings = map(self.setting, arguments)
        return any(setting is not None and is_whole(setting.value) for setting in settings)

    @cached_property
    def exchange(self) -> str | None:
        return self.text(_EXCHANGE)

    @cached_property
    def key(self) -> str | None:
        return self.text(_KEY)

    @cached_property
    def ends(self) -> dict[Keys, Ends]:
        """What they reach, by what is known of their routing keys; empty without a dead-letter exchange."""
        if self.exchange is None:
            return {}
        keys: set[Keys] = {KeyKnowledge.UNKNOWN}
        if self.key is not None:
            keys = {self.key}
        elif self.queue.owner != "external":  # others bind an external one
            keys = self.all.reach.keys_at(self.queue.name)
        return {key: self.all.reach.ends_of(self.exchange, key) for key in keys}

    @cached_property
    def next(self) -> frozenset[str] | None:
        """The queues that they reach at most; None if some reach none, or if that is not known."""
        reached = [end.queues for end in self.ends.values()]
        return frozenset().union(*filter(None, reached)) if reached and all(reached) else None

    @property
    def expires(self) -> bool:
        return self.has_number(_TTL)

    @property
    def dies_by_itself(self) -> bool:
        """True if messages expire, or are dropped because of a limit."""
        return self.expires or (self.has_number(*_LIMITS) and self.text(_OVERFLOW) != "reject-publish")

    @property
    def where(self) -> str:
        setting = self.setting(_EXCHANGE)
        by = f" by the {setting.policy}" if setting is not None and setting.policy else ""
        named = f"the dead-letter exchange {self.exchange}" if self.exchange else "the default exchange"
        return f"{self.queue.name} publishes dead letters to {named}{by}"

    @property
    def fate(self) -> str:
        """What becomes of dead letters that reach no queue."""
        if (
            self.queue.type == "quorum"
            and self.text("x-dead-letter-strategy") == "at-least-once"
            and self.text(_OVERFLOW) == "reject-publish"
        ):
            return "they stay in it, and count for its limits, until a queue gets them"
        return "they are lost without an error"

    def correction(self, argument: str = _EXCHANGE) -> str:
        setting = self.setting(argument)
        if setting is not None and setting.policy:
            return f"correct {argument.removeprefix('x-')} in the {setting.policy}"
        return f"correct {argument} of {self.queue.name}"


_Found = tuple[str, str] | None


def _find_no_target(letters: _DeadLetters) -> _Found:
    if letters.exchange is not None or letters.text(_OVERFLOW) != "reject-publish-dlx":
        return None
    name = letters.queue.name
    fate = "is only refused, with a nack" if letters.queue.type == "classic" else "drops the oldest one"
    message = f"{name} has the overflow reject-publish-dlx and no dead-letter exchange: a message beyond its limit {fate}"
    return message, f"set a dead-letter exchange for {name}, or the overflow reject-publish"


def _find_missing(letters: _DeadLetters) -> _Found:
    name = letters.exchange
    if not name or letters.all.reach.exists(ExchangeRef(name)):
        return None
    message = f"{letters.where}, {letters.all.why_missing(name)}: {letters.fate}"
    return message, f"{letters.all.how_to_add(f'an exchange {name}')}, or {letters.correction()}"


def _find_no_queue(letters: _DeadLetters) -> _Found:
    """Return the fault of the default exchange."""
    if letters.exchange != "" or all(end.queues != frozenset() for end in letters.ends.values()):
        return None
    if letters.key is None:
        message = f"{letters.where} with the routing keys that they have, which are no names of queues: {letters.fate}"
        return message, f"set {_KEY} to the name of a queue, or {letters.correction()}"
    message = f"{letters.where} with the name of the queue {letters.key}, {letters.all.lacks}: {letters.fate}"
    return message, f"{letters.all.how_to_add(f'a queue {letters.key}')}, or {letters.correction(_KEY)}"


def _find_unbound(letters: _DeadLetters) -> _Found:
    lost = [key for key, end in letters.ends.items() if end.queues == frozenset()]
    if not lost:
        return None
    name = letters.exchange
    keys = sorted(repr(key) for key in lost if isinstance(key, str))
    if letters.all.reach.leads_nowhere(str(name)):
        fault, fix = "which leads to no queue", f"bind a queue to {name}"
    elif keys:
        fault = f"which routes the key {listed(keys, FEW)} to no queue"
        fix = f"bind a queue to {name} with the key {keys[0]}"
    else:
        fault = "which passes only the keys of its bindings on, and they keep their routing keys"
        fix = f"set {_KEY} to a key of its bindings, let a fanout exchange take the place of {name}"
    return f"{letters.where}, {fault}: {letters.fate}", f"{fix}, or {letters.correction()}"


def _find_one_key(letters: _DeadLetters) -> _Found:
    """Return the fault of a key that replaces those that a ring hashes, also if other queues keep the messages first."""
    if letters.key is None:
        return None
    seen = {letters.queue.name}
    waiting = [*letters.ends.values()]
    while waiting:
        end = waiting.pop()
        if end.hashing:
            message = (
                f"{letters.where} with the routing key {letters.key!r}, and {min(end.hashing)} hashes it: one of its members gets all of them, "
                "and their own keys are gone"
            )
            return (
                message,
                f"take {_KEY.removeprefix('x-')} away from {letters.queue.name}, so that they keep their keys",
            )
        for name in (end.queues or frozenset()) - seen:
            seen.add(name)
            after = letters.all.by_queue.get(name)
            if after is not None and after.exchange is not None and after.key is None:
                waiting.append(letters.all.reach.ends_of(after.exchange, letters.key))
    return None


def _find_circle(letters: _DeadLetters) -> _Found:
    circle: dict[str, _DeadLetters] = {}
    waiting = [letters]
    while waiting:
        onward = waiting.pop().next
        if onward is None:
            return None
        for name in onward - circle.keys():
            after = letters.all.by_queue.get(name)
            if after is None:
                return None
            circle[name] = after
            waiting.append(after)
    name = letters.queue.name
    if name not in circle:
        return None
    by = [other for other in circle if other != name]
    way = f"come back to it{f' by {listed(by, FEW)}' if by else ''}"
    fix = f"let a queue without a dead-letter exchange get them, or {letters.correction()}"
    if letters.dies_by_itself and all(circle[other].expires for other in by):
        message = f"{letters.where}, and they {way}: RabbitMQ drops those that no consumer rejected"
        return message, fix
    is_certain = all(end.is_certain for one in circle.values() for end in one.ends.values())
    if is_certain and not any(one.expires for one in circle.values()):
        message = f"{letters.where}, and they {way}: a message that is always rejected goes round without an end, and without a delay"
        return message, fix
    return None


#: The rules, in their order: the first fault of a queue is its finding.
_RULES: tuple[Callable[[_DeadLetters], _Found], ...] = (
    _find_no_target,
    _find_missing,
    _find_no_queue,
    _find_unbound,
    _find_one_key,
    _find_circle,
)
