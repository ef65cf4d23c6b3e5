"""The report of a comparison with a scratch copy: where messages were found, and where they were predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.key_routing import Refused
from rabbit_chx.analysis.report_parts import outcome_text, ring_text, source_as_json
from rabbit_chx.analysis.wording import finding_as_json, place_text
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Facts, Table
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.planning.refusals import READ_RINGS
from rabbit_chx.topology.reports.exchange_report import exchange_facts
from rabbit_chx.words import percent, plural

_MOST_SHOWN = 20
_DESTINATIONS = {
    "destination": Shown("destination", place_text),
    "messages": Shown("messages", number=True),
    "predicted": Shown("predicted", number=True),
}
_DIFFERENCES = {
    "key": Shown("key"),
    "predicted": Shown("predicted", outcome_text),
    "found": Shown("found", place_text),
}


@dataclass(frozen=True, slots=True)
class ScratchReport:
    """A comparison with a scratch copy.

    Attributes:
        exchange: the name of the exchange that was copied.
        arguments: its arguments that determine the hashed value.
        findings: the faults of the ring.
        found: the number of messages that reached each destination.
        predicted: the number of messages that the mirror predicted for each destination.
        differences: the key of each message with another destination, the predicted one, and the one found.
        heaviest: the most frequent key of the sample and its share of the messages, 0 to 1, which have one destination, whatever the ring; None if no key occurs twice.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    ring: KeyMap
    findings: Sequence[Finding]
    found: Mapping[Place, int] = field(default_factory=dict)
    predicted: Mapping[Place, int] = field(default_factory=dict)
    differences: Sequence[tuple[str, Place | Refused, Place]] = ()
    heaviest: tuple[str, float] | None = None

    def with_messages(
        self,
        keys: Sequence[str],
        predicted: Sequence[Place | Refused],
        found: Sequence[tuple[Place, ...]],
    ) -> ScratchReport:
        """Return the report with a comparison: the predicted destination of each key, and those at which its message was found."""
        differences = [
            (key, place, next((each for each in places if each != place), None))
            for key, place, places in zip(keys, predicted, found, strict=True)
            if places != (() if place is None else (place,))
        ]
        return replace(
            self,
            found=Counter(place for places in found for place in places or (None,)),
            predicted=Counter(place for place in predicted if not isinstance(place, Refused)),
            differences=differences,
            heaviest=_heaviest_key(keys),
        )

    @property
    def doubt(self) -> str | None:
        """The uncertainty of a ring; None if it was read or is recorded."""
        if self.ring.ground.is_certain or not self.ring.traits.has_order:
            return None  # where no order matters, the bindings determine the destinations
        return Fix(
            "the copy was made from that guess, so this verifies the rules of the broker, not the ring; pass ",
            READ_RINGS,
            " to read it",
        )

    def document(self) -> Document:
        """Return the compared objects, the destinations of the messages, and the differences."""
        compared, heaviest = sum(self.found.values()), self.heaviest
        copied = f"{plural(compared, 'message')} with a copy in a vhost of its own, now removed"
        facts = [
            *self._facts(),
            ("compared", copied if compared else "nothing"),
            ("mismatches", f"{len(self.differences):,}"),
            *([("heaviest key", _heaviest_text(*heaviest))] if heaviest else []),
            *(
                [("verified", Fix("not the ring, which is a guess: ", doubt))]
                if (doubt := self.doubt)
                else []
            ),
            *(("finding", Fix(f"{finding.kind}: ", finding.text)) for finding in self.findings),
        ]
        findings = [
            finding_as_json(finding, destination=finding.destination, share=finding.share)
            for finding in self.findings
        ]
        fields = {
            "exchange": self.exchange,
            "vhost": self.vhost,
            "arguments": self.arguments,
            **source_as_json(self.ring),
            "determined": bool(self.found) and not self.doubt,
            "findings": findings,
            "compared": compared,
            "mismatches": len(self.differences),
            "heaviest_key": heaviest and {"key": heaviest[0], "share": heaviest[1]},
        }
        counts = [
            (place, self.found.get(place, 0), self.predicted.get(place, 0))
            for place in dict.fromkeys((*self.ring.buckets, *self.found))
        ]
        shown = self.differences[:_MOST_SHOWN]
        return Document(
            "verify",
            [
                Data(fields),
                Facts(facts),
                Table.of(_DESTINATIONS, counts, key="destinations").for_people(compared),
                Table.of(_DIFFERENCES, shown, key="examples").for_people(compared and shown),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        if self.ring.traits.has_order:
            return exchange_facts(self.exchange, self.vhost, self.arguments, self.ring)
        return [("exchange", self.exchange), ("vhost", self.vhost), ("type", ring_text(self.ring))]


def _heaviest_key(keys: Sequence[str]) -> tuple[str, float] | None:
    heaviest = Counter(keys).most_common(1)
    return (heaviest[0][0], heaviest[0][1] / len(keys)) if heaviest and heaviest[0][1] > 1 else None


def _heaviest_text(key: str, share: float) -> str:
    return f"{key!r:.60}: {percent(share)} of the messages, to one destination"
