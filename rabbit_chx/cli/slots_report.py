"""The slots of a live exchange, and a proposal of who should have which, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.notation import exchange_facts, percent, place_text, plural, rounded
from rabbit_chx.rendering import Block, Facts, Line, Table, TableColumn, Verbatim
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import order_of_name
from rabbit_chx.topology.toml_file import member_texts, members_text

if TYPE_CHECKING:
    from rabbit_chx.cli.slot_sample import LiveTable, SlotSample
    from rabbit_chx.routing import Place
    from rabbit_chx.topology import SlotBalance

__all__ = ["BalanceReport", "SlotsReport"]

_HEAVIEST = 5
_RESULTS = {
    "balanced": "nothing to do: no queue has more than it may have",
    "impossible": "no slots that change hands reach the target",
    "not-found": "nothing was found that reaches the target",
}


@dataclass(frozen=True, slots=True)
class SlotsReport:
    """The slots of an exchange.

    Attributes:
        table: the slots.
        sample: their load; None without a sample.
    """

    table: LiveTable
    sample: SlotSample | None

    def blocks(self) -> Iterator[Block]:
        """Return the exchange, its queues, its slots, and the heaviest keys."""
        yield Facts(_facts(self.table, self.sample))
        yield self._queue_table()
        yield self._slot_table()
        if self.sample is not None:
            yield _heaviest_table(self.table, self.sample)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        slots, shares = self.table.slots, self.table.slots.ring.shares()
        return {
            "format": "rabbit-chx/slots",
            "format_version": 1,
            **_about(self.table, self.sample),
            "queues": [
                {
                    "queue": queue,
                    "slots": count,
                    "keys": rounded(slots.shares().get(queue, 0.0)),
                    "load": self._load(queue),
                    "rate": None if queue is None else self.table.rates.queues.get(queue),
                }
                for queue, count in self._held().items()
            ],
            "slots": [
                {
                    "slot": slot.name,
                    "queue": slots.owners.get(slot),
                    "keys": rounded(shares.get(slot, 0.0)),
                    "load": self._slot_load(slot),
                }
                for slot in slots.slots
            ],
            "heaviest": _heaviest_json(self.table, self.sample),
        }

    def _held(self) -> dict[str | None, int]:
        """How many slots each queue has; under None those that nobody has."""
        slots = self.table.slots
        held = Counter(slots.owners.get(slot) for slot in slots.slots)
        named = sorted((queue for queue in slots.destinations if isinstance(queue, str)), key=order_of_name)
        return {queue: held[queue] for queue in (*named, *([None] if held[None] else []))}

    def _slot_load(self, place: Place) -> float | None:
        if self.sample is None:
            return None
        return 0.0 if place is None else _share(self.sample, self.sample.load.messages.get(place, 0))

    def _load(self, queue: str | None) -> float | None:
        slots = self.table.slots
        places = [place for place in slots.ring.destinations if slots.queue_of(place) == queue]
        loads = [load for place in places if (load := self._slot_load(place)) is not None]
        return None if self.sample is None else rounded(sum(loads))

    def _queue_table(self) -> Table:
        rates, shares = self.table.rates.queues, self.table.slots.shares()
        columns = [
            "slots",
            "of all keys",
            *(["of the load"] if self.sample else []),
            *(["messages/s"] if rates else []),
        ]
        rows = [
            (
                place_text(queue),
                count,
                percent(shares.get(queue, 0.0)),
                *([percent(self._load(queue) or 0.0)] if self.sample else []),
                *([_rate(rates.get(queue or ""))] if rates else []),
            )
            for queue, count in self._held().items()
        ]
        return Table([TableColumn("queue", numeric=False), *map(TableColumn, columns)], rows)

    def _slot_table(self) -> Table:
        slots, shares = self.table.slots, self.table.slots.ring.shares()
        names = [TableColumn("slot", numeric=False), TableColumn("queue", numeric=False)]
        rate = self.table.rates.exchange
        rows = []
        for slot in slots.slots:
            load = self._slot_load(slot)
            loads = () if load is None else (percent(load), *([] if rate is None else [_rate(load * rate)]))
            rows.append(
                (slot.name, place_text(slots.owners.get(slot)), percent(shares.get(slot, 0.0)), *loads)
            )
        columns = ("of all keys", "of the load", "messages/s")[: len(rows[0]) - len(names)]
        return Table([*names, *map(TableColumn, columns)], rows)


@dataclass(frozen=True, slots=True)
class BalanceReport:
    """A proposal of who should have which slot.

    Attributes:
        table: the slots.
        sample: their load.
        balance: the proposal.
    """

    table: LiveTable
    sample: SlotSample
    balance: SlotBalance

    def blocks(self) -> Iterator[Block]:
        """Return the result, the moves, the queues before and after, the heaviest keys, and the members for the file."""
        yield Facts(
            [*_facts(self.table, self.sample), ("target", self._target()), ("result", self._result())]
        )
        for obstacle in self.balance.obstacles:
            yield Line(f"{obstacle.says}: {obstacle.cure}")
        if self.balance.moves:
            yield self._move_table()
        yield self._queue_table()
        yield _heaviest_table(self.table, self.sample)
        if self.balance.moves:
            yield from self._file_blocks()

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        made = self.balance
        members = made.members(self.table.exchange)
        return {
            "format": "rabbit-chx/balance",
            "format_version": 1,
            **_about(self.table, self.sample),
            "state": made.state,
            "target": str(made.target),
            "reachable": None if made.reachable is None else str(made.reachable),
            "moves": [
                {"slot": one.slot.name, "old": one.old, "new": one.new, "load": rounded(one.share)}
                for one in made.moves
            ],
            "at_least": made.at_least,
            "moved": {"load": rounded(made.load_moved), "keys": rounded(made.keys_moved)},
            "queues": [
                {
                    "queue": one.queue,
                    "weight": one.weight,
                    "limit": None if one.limit is None else rounded(one.limit),
                    "slots_before": one.slots_before,
                    "slots_after": one.slots_after,
                    "before": rounded(one.before),
                    "after": rounded(one.after),
                }
                for one in made.queues
            ],
            "heaviest": _heaviest_json(self.table, self.sample),
            "obstacles": [
                {
                    "kind": one.kind,
                    "says": f"{one.says}: {one.cure}",
                    "slot": one.destination.name if isinstance(one.destination, ExchangeRef) else None,
                    "key": one.names[0] if one.names else None,
                    "queue": None if isinstance(one.destination, ExchangeRef) else one.destination,
                }
                for one in made.obstacles
            ],
            "members": members
            and [{"queue": one.destination, "slots": list(one.slots or ())} for one in members],
        }

    def _target(self) -> str:
        target = self.balance.target
        if target.kind == "share":
            return f"at most {target} of the load in each queue"
        return f"at most {target} times the part of the load that is due to a queue by its weight"

    def _result(self) -> str:
        made = self.balance
        if not made.moves:
            return _RESULTS[made.state]
        count = len(made.moves)
        proof = "no fewer reach the target" if count == made.at_least else f"at least {made.at_least} have to"
        changes = "slot changes hands" if count == 1 else "slots change hands"
        return f"{count} {changes} ({proof}); {percent(made.load_moved)} of the load and {percent(made.keys_moved)} of all keys move"

    def _move_table(self) -> Table:
        names = [TableColumn(name, numeric=False) for name in ("slot", "from", "to")]
        rows = [
            (one.slot.name, place_text(one.old), one.new, percent(one.share)) for one in self.balance.moves
        ]
        return Table([*names, TableColumn("of the load")], rows)

    def _queue_table(self) -> Table:
        headings = ("weight", "slots", "then", "of the load", "then", "may have")
        rows = [
            (
                place_text(one.queue),
                "" if one.weight is None else one.weight,
                one.slots_before,
                one.slots_after,
                percent(one.before),
                percent(one.after),
                "" if one.limit is None else percent(one.limit),
            )
            for one in self.balance.queues
        ]
        return Table([TableColumn("queue", numeric=False), *map(TableColumn, headings)], rows)

    def _file_blocks(self) -> Iterator[Block]:
        members = self.balance.members(self.table.exchange)
        if members is None:
            yield Line(
                f"A topology file cannot say this: the ring of {self.table.exchange} has more than slots by the names that a file "
                "gives them. Bind and unbind the slots by hand."
            )
            return
        yield Line(
            f"Nothing is changed. In the topology file, the members of {self.table.exchange} are then as follows; topology plan "
            "shows what that changes, and topology apply does it."
        )
        yield Verbatim(
            f"slots = {len(self.table.slots.slots)}\nmembers = {members_text(member_texts(members))}\n"
        )


def _facts(table: LiveTable, sample: SlotSample | None) -> list[tuple[str, str]]:
    facts = exchange_facts(table.exchange, table.vhost, table.arguments, table.slots)
    if table.rates.exchange is not None:
        facts.append(("published", f"{_rate(table.rates.exchange)} messages/s in the last seconds"))
    if sample is not None:
        nowhere = f", {sample.load.nowhere:,} of them to no slot" if sample.load.nowhere else ""
        facts.append(("sample", f"{plural(sample.messages, 'message')} of {sample.source}{nowhere}"))
    return facts


def _about(table: LiveTable, sample: SlotSample | None) -> dict[str, Any]:
    return {
        "exchange": table.exchange,
        "vhost": table.vhost,
        "provenance": table.slots.provenance,
        "rate": table.rates.exchange,
        "sample": sample
        and {"source": sample.source, "messages": sample.messages, "nowhere": sample.load.nowhere},
    }


def _share(sample: SlotSample, messages: float) -> float:
    return rounded(messages / sum(sample.load.messages.values()))


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


def _heaviest_table(table: LiveTable, sample: SlotSample) -> Table:
    headings = ("heaviest keys", "slot", "queue")
    rows = [
        (
            str(one.key),
            one.place.name if not isinstance(one.place, str | None) else place_text(one.place),
            place_text(table.slots.queue_of(one.place)),
            percent(_share(sample, one.least)),
        )
        for one in sample.load.keys[:_HEAVIEST]
    ]
    return Table([*(TableColumn(name, numeric=False) for name in headings), TableColumn("of the load")], rows)


def _heaviest_json(table: LiveTable, sample: SlotSample | None) -> list[dict[str, Any]]:
    if sample is None:
        return []
    return [
        {
            "key": str(one.key),
            "slot": None if isinstance(one.place, str | None) else one.place.name,
            "queue": None if one.place is None else str(table.slots.queue_of(one.place)),
            "least": one.least,
            "most": one.most,
        }
        for one in sample.load.keys
    ]
