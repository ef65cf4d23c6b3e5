"""The result of ``rabbit-chx verify``, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.notation import (
    bucket_ranges,
    exchange_facts,
    outcome_json,
    outcome_text,
    place_json,
    place_text,
    plural,
    ring_as_json,
)
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, PARTLY
from rabbit_chx.rendering import Block, Facts, Line, Table, TableColumn

if TYPE_CHECKING:
    from rabbit_chx.analysis import Finding, Place, Refused
    from rabbit_chx.analysis.traffic import InferredRing, Misrouted
    from rabbit_chx.broker.live_exchange import LiveExchange
    from rabbit_chx.routing import HashRing

__all__ = ["Difference", "PassiveReport", "ScratchReport"]

_MOST_SHOWN = 20
_HAS_NO_BINDING = "has buckets and no binding: if it does not exist any more, its messages are lost"


@dataclass(frozen=True, slots=True)
class Difference:
    """A message of the scratch copy that is not where the mirror says.

    Attributes:
        key: what was hashed.
        predicted: the destination by the mirror.
        found: the destination on the broker.
    """

    key: str
    predicted: Place | Refused
    found: Place


@dataclass(frozen=True, slots=True)
class ScratchReport:
    """A comparison with a scratch copy.

    Attributes:
        exchange: the exchange that was copied.
        ring: its ring.
        findings: what is wrong with the ring.
        found: how many messages came to each destination.
        predicted: how many messages the mirror predicted for each destination.
        differences: the messages that were elsewhere.
    """

    exchange: LiveExchange
    ring: HashRing
    findings: Sequence[Finding]
    found: Mapping[Place, int]
    predicted: Mapping[Place, int]
    differences: Sequence[Difference]

    @property
    def guess(self) -> str | None:
        """What an assumed ring leaves open; None where the ring was read."""
        if self.ring.provenance != "assumed":
            return None
        return (
            "the copy was made from that guess, so this compares the rules of the broker, and not the ring; "
            "give --ring-via PREFIX to read it"
        )

    @property
    def code(self) -> int:
        """The exit code."""
        if self.differences or self.findings:
            return DIFFERENCE
        return PARTLY if self.guess or not self.found else DONE

    def blocks(self) -> Iterator[Block]:
        """Return what was compared, where the messages were, and which were elsewhere."""
        compared = sum(self.found.values())
        copied = "with a copy in a vhost of its own, now removed"
        yield Facts(
            [
                *_about(self.exchange, self.ring),
                ("compared", f"{plural(compared, 'message')} {copied}" if compared else "nothing"),
                ("mismatches", f"{len(self.differences):,}"),
                *_doubt("nothing about the ring", self.guess),
                *_finding_facts(self.findings),
            ]
        )
        if not compared:
            return
        places = dict.fromkeys((*self.ring.buckets, *self.found))
        yield Table(
            [TableColumn("destination", numeric=False), TableColumn("messages"), TableColumn("predicted")],
            [(place_text(place), self.found.get(place, 0), self.predicted.get(place, 0)) for place in places],
        )
        shown = self.differences[:_MOST_SHOWN]
        if shown:
            yield _differences((one.key, outcome_text(one.predicted), place_text(one.found)) for one in shown)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        compared = sum(self.found.values())
        return _document("scratch", self.exchange, self.ring, self.findings, compared) | {
            "mismatches": len(self.differences),
            "destinations": [
                {
                    "destination": place_json(place),
                    "messages": self.found.get(place, 0),
                    "predicted": self.predicted.get(place, 0),
                }
                for place in dict.fromkeys((*self.ring.buckets, *self.found))
            ],
            "examples": [
                {"key": one.key, "predicted": outcome_json(one.predicted), "found": place_json(one.found)}
                for one in self.differences[:_MOST_SHOWN]
            ],
        }


@dataclass(frozen=True, slots=True)
class PassiveReport:
    """A comparison with real traffic.

    Attributes:
        exchange: the exchange that was watched.
        ring: the ring that its traffic was compared with.
        findings: what is wrong with that ring.
        compared: how many messages were seen.
        misrouted: the messages that were elsewhere.
        inferred: what the traffic says of the ring.
    """

    exchange: LiveExchange
    ring: HashRing
    findings: Sequence[Finding]
    compared: int
    misrouted: Sequence[Misrouted]
    inferred: InferredRing

    @property
    def guess(self) -> str | None:
        """What an assumed ring leaves open; None where the ring was read, or the traffic proves all of it."""
        proven = self.inferred.complete and self.inferred.ring(self.ring.release) == self.ring
        if self.ring.provenance != "assumed" or self.misrouted or proven:
            return None
        return "this traffic does not prove all of it; give --ring-via PREFIX to read it, or more --messages"

    @property
    def code(self) -> int:
        """The exit code."""
        if self.misrouted or self.unbound or self.findings:
            return DIFFERENCE
        return PARTLY if self.guess or not self.compared else DONE

    def blocks(self) -> Iterator[Block]:
        """Return what was compared, which messages were elsewhere, and the inferred ring."""
        yield Facts(
            [
                *_about(self.exchange, self.ring),
                (
                    "compared",
                    f"{plural(self.compared, 'message')} of real traffic; tracing is as it was before",
                ),
                ("mismatches", f"{len(self.misrouted):,}"),
                *_doubt("not all of the ring", self.guess),
                *_finding_facts(self.findings),
                ("inferred", self._inferred()),
                *(("unbound", f"{place_text(place)} {_HAS_NO_BINDING}") for place in self.unbound),
            ]
        )
        shown = self.misrouted[:_MOST_SHOWN]
        if shown:
            yield _differences(
                (one.observation.key, place_text(one.predicted), self._queues(one)) for one in shown
            )
        if not self.compared:
            yield Line(
                "Nothing was published to the exchange over this node in that time: nothing is proven."
            )
            return
        columns = [
            TableColumn("destination", numeric=False),
            TableColumn("buckets that are proven", numeric=False),
        ]
        ranges = bucket_ranges(sorted(self.inferred.proven.items()))
        yield Table(columns, [(place_text(place), text) for place, text in ranges.items()])

    @property
    def unbound(self) -> list[Place]:
        """Destinations that have buckets and no binding; one may be a queue that no longer exists and loses
        its messages.
        """
        bound = {destination for destination, _ in self.exchange.bindings}
        return [place for place in dict.fromkeys(self.inferred.proven.values()) if place not in bound]

    def _inferred(self) -> str:
        found = self.inferred
        texts = [f"{len(found.proven):,} of {plural(len(found.candidates), 'bucket')} proven"]
        if found.unknown:
            texts.append(f"{len(found.unknown):,} unknown")
        if found.contradicted:
            texts.append(
                f"{len(found.contradicted):,} contradicted: the ring changed during the trace, or is larger"
            )
        if len(found.candidates) != found.expected:
            texts.append(
                f"the bindings say {plural(found.expected, 'bucket')}: some have no binding any more"
            )
        return ", ".join(texts)

    @staticmethod
    def _queues(one: Misrouted) -> str:
        return ", ".join(sorted(one.observation.queues)) or "(nowhere)"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        found = self.inferred
        return _document("passive", self.exchange, self.ring, self.findings, self.compared) | {
            "mismatches": len(self.misrouted),
            "examples": [
                {
                    "key": one.observation.key,
                    "predicted": place_json(one.predicted),
                    "found": sorted(one.observation.queues),
                }
                for one in self.misrouted[:_MOST_SHOWN]
            ],
            "inferred": {
                "buckets": len(found.candidates),
                "buckets_by_bindings": found.expected,
                "proven": [
                    {"bucket": bucket, "destination": place_json(place)}
                    for bucket, place in found.proven.items()
                ],
                "unknown": list(found.unknown),
                "contradicted": list(found.contradicted),
                "unbound": [place_json(place) for place in self.unbound],
                "ring": json.loads(found.ring(self.exchange.release).to_json()) if found.complete else None,
            },
        }


def _about(exchange: LiveExchange, ring: HashRing) -> list[tuple[str, str]]:
    return exchange_facts(exchange.name, exchange.vhost, exchange.arguments, ring)


def _doubt(what: str, guess: str | None) -> list[tuple[str, str]]:
    return [] if guess is None else [("proven", f"{what}, which is a guess: {guess}")]


def _finding_facts(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [("finding", f"{one.kind}: {one.says}") for one in findings]


def _document(
    way: str, exchange: LiveExchange, ring: HashRing, findings: Sequence[Finding], compared: int
) -> dict[str, Any]:
    return {
        "format": "rabbit-chx/verify",
        "format_version": 1,
        "way": way,
        "exchange": exchange.name,
        "vhost": exchange.vhost,
        "arguments": dict(exchange.arguments),
        "ring": ring_as_json(ring),
        "findings": [
            {
                "kind": one.kind,
                "destination": place_json(one.destination),
                "share": one.share,
                "says": one.says,
            }
            for one in findings
        ],
        "compared": compared,
    }


def _differences(rows: Iterable[tuple[str, str, str]]) -> Table:
    return Table([TableColumn(name, numeric=False) for name in ("key", "predicted", "found")], list(rows))
