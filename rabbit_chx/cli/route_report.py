"""A key's destination and the explanation of it, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.notation import place_json, place_text, source_as_json, source_fact
from rabbit_chx.rendering import Block, Facts, Line, Table, TableColumn
from rabbit_chx.rendering.table import printable
from rabbit_chx.routing import Explanation, KeyMap, SlotTable

if TYPE_CHECKING:
    from rabbit_chx.analysis import ModuloMap, Place

__all__ = ["Answer", "RouteReport"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a key goes.

    Attributes:
        key: the key, as it was given.
        place: the key's destination; None where the message is unroutable.
        explanation: why the key goes there; None where that was not asked.
        slot: the name of the slot by which the key gets there; empty where it has none, None where the ring has no slots.
    """

    key: str
    place: Place
    explanation: Explanation | None = None
    slot: str | None = None

    def as_line(self) -> str:
        """Return the key, its destination, its slot where there are slots, and the explanation, with tabs between them."""
        fields = [self.key, place_text(self.place), *([] if self.slot is None else [self.slot])]
        if self.explanation:
            fields += [value for _, value in _facts(self.explanation)]
        return "\t".join(map(printable, fields))

    def as_json(self) -> dict[str, Any]:
        """Return one answer of the JSON document."""
        answer = {"key": self.key, "destination": place_json(self.place)}
        if self.slot is not None:
            answer["slot"] = self.slot or None
        if self.explanation is None:
            return answer
        return answer | {
            "hashed_on": str(self.explanation.hashed_on),
            "term": self.explanation.term,
            "phash2": self.explanation.phash2,
            "seed": self.explanation.seed,
            "walk": list(self.explanation.walk),
            "bucket": self.explanation.bucket,
            "buckets": self.explanation.buckets,
            "reason": self.explanation.reason,
            "rule": self.explanation.rule,
            "source": self.explanation.source,
        }


@dataclass(frozen=True, slots=True)
class RouteReport:
    """Where some keys go.

    Attributes:
        source: the ring or its slots, or an exchange of type ``x-modulus-hash``, or a super stream.
        answers: one for each key, in the order of the keys.
    """

    source: KeyMap | ModuloMap
    answers: Sequence[Answer]

    def blocks(self) -> Iterator[Block]:
        """Return a table of the answers, or the facts of each explained answer."""
        plain = [answer for answer in self.answers if answer.explanation is None]
        if plain:
            yield _answers_table(plain, slots=isinstance(self.source, SlotTable))
        for answer in self.answers:
            if answer.explanation:
                named = [("key", answer.key), ("destination", place_text(answer.place))]
                if answer.slot:
                    named.append(("slot", answer.slot))
                yield Facts([*named, *_facts(answer.explanation)])
        yield Line(": ".join(source_fact(self.source)))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        document = {"format": "rabbit-chx/route", "format_version": 1}
        answers = [answer.as_json() for answer in self.answers]
        return {**document, **source_as_json(self.source), "answers": answers}


def _answers_table(answers: Sequence[Answer], *, slots: bool) -> Table:
    headings = ("key", "slot", "destination") if slots else ("key", "destination")
    rows = [
        (answer.key, *([answer.slot or ""] if slots else []), place_text(answer.place)) for answer in answers
    ]
    return Table([TableColumn(heading, numeric=False) for heading in headings], rows)


def _facts(why: Explanation) -> list[tuple[str, str]]:
    hashed = "none: the seed itself" if why.phash2 is None and why.seed is not None else _text(why.phash2)
    return [
        ("hashed on", str(why.hashed_on)),
        ("term", _text(why.term)),
        ("phash2", hashed),
        ("seed", _text(why.seed)),
        ("walk", " > ".join(map(str, why.walk)) or "none"),
        ("bucket", why.reason or f"{why.bucket} of {why.buckets}"),
        ("rule", _text(why.rule)),
        ("source", _text(why.source)),
        ("release", str(why.release)),
    ]


def _text(value: object) -> str:
    return "none" if value is None else str(value)
