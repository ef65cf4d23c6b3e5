"""The report of keys: where each goes, and how the broker comes to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rabbit_chx.analysis.report_parts import source_as_json, source_fact, texts
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.rendering.document import Batch, Data, Document, Facts, Line, Table
from rabbit_chx.result_fields import SPREAD, json_fields, shown
from rabbit_chx.routing import ExchangeRef, Explanation
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap


def _steps_as_json(how: Explanation | None) -> dict[str, Any]:
    names = ("term", "phash2", "seed", "walk", "bucket", "buckets", "reason", "rule", "source")
    if how is None:
        return {}
    return {"hashed_on": str(how.hashed_on), **{name: getattr(how, name) for name in names}}


@dataclass(frozen=True, slots=True)
class Answer:
    """The destination of a key.

    Attributes:
        key: the key as given.
        place: the destination; None if the message is unroutable, or if the destination is not determined.
        slot: the name of the key's slot; empty if it has none, None if the ring has no slots.
        fault: why an exchange of the ring does not pass the message to exactly one queue; else None.
        explanation: the steps of the routing; None without ``--explain``.
        is_known: False if the destination is not determined, because the order of the ring or the hashed value is not known.
    """

    key: str
    place: Place = field(metadata=shown(json="destination"))
    slot: str | None = field(default=None, metadata=shown(optional=True, as_json=lambda slot: slot or None))
    fault: str | None = field(default=None, metadata=shown(optional=True))
    explanation: Explanation | None = field(default=None, metadata=shown(json=SPREAD, as_json=_steps_as_json))
    is_known: bool = field(default=True, metadata=shown(json=None))

    @classmethod
    def of(
        cls,
        key: str,
        source: KeyMap,
        place: Place,
        faults: Mapping[ExchangeRef, str],
        *,
        explanation: Explanation | None = None,
    ) -> Answer:
        """Return the answer for a key whose destination in the ring is `place`; `faults` are those of its exchanges."""
        if not isinstance(place, ExchangeRef):
            return cls(key, place, None if source.slots is None else "", explanation=explanation)
        fault = faults.get(place)
        slot = None
        if source.slots is not None:
            slot = place.name if fault or place in source.slots else ""
        return cls(key, source.queue_of(place), slot, fault, explanation)

    @classmethod
    def unknown(cls, key: str) -> Answer:
        """Return the answer for a key whose destination is not determined."""
        return cls(key, None, is_known=False)

    @property
    def destination(self) -> str:
        """The destination for people."""
        if not self.is_known:
            return "not determined"
        return place_text(self.place)

    def facts(self) -> list[tuple[str, str]]:
        """Return the names and values of the fields. The slot is a field if the ring has slots."""
        row = [("key", self.key), ("destination", self.destination)]
        if self.slot is not None:
            row.append(("slot", str(self.slot)))
        return [*row, *_facts(self.explanation)] if self.explanation else row


def _are_determined(answers: Sequence[Answer]) -> bool:
    return all(answer.is_known for answer in answers)


def answers_batch(answers: Sequence[Answer], shared: Mapping[str, object]) -> Batch:
    """Return answers that are shown one by one: all with the same fields."""
    shared = {**shared, "determined": _are_determined(answers)}
    facts = [answer.facts() for answer in answers]
    names = [name for name, _ in facts[0]] if facts else []
    rows = [[value for _, value in row] for row in facts]
    return Batch("answer", Table(texts(*names), rows, value=lambda: list(map(json_fields, answers))), shared)


def route_report(source: KeyMap, answers: Sequence[Answer], *, learn: str = "") -> Document:
    """Return the destinations of keys, in the order of the keys: a table of the answers, or the facts of each explained answer.

    `learn` is the command that learns the order of the ring, if that is not known.
    """
    is_determined = _are_determined(answers)
    slots = any(answer.slot is not None for answer in answers)
    plain = [answer for answer in answers if answer.explanation is None]
    rows = [(answer.key, *([answer.slot or ""] if slots else []), answer.destination) for answer in plain]
    explained = [
        Facts(
            [
                ("key", answer.key),
                ("destination", answer.destination),
                *([("slot", str(answer.slot))] if answer.slot else ()),
                *([("fault", str(answer.fault))] if answer.fault else ()),
                *_facts(answer.explanation),
            ]
        )
        for answer in answers
        if answer.explanation
    ]
    table = Table(
        texts("key", *(["slot"] if slots else []), "destination"),
        rows,
        key="answers",
        value=lambda: list(map(json_fields, answers)),
    )
    return Document(
        "route",
        [
            Data(source_as_json(source)),
            table.for_people(rows),
            Data({"determined": is_determined, **({"learn": learn} if learn else {})}),
            *explained,
            *(Line(f"{answer.key}: {answer.fault}") for answer in plain if answer.fault),
            Line(": ".join(source_fact(source))),
        ],
    )


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    hashed = (
        "none: the seed itself"
        if explanation.phash2 is None and explanation.seed is not None
        else _text(explanation.phash2)
    )
    return [
        ("hashed on", str(explanation.hashed_on)),
        ("term", _text(explanation.term)),
        ("phash2", hashed),
        ("seed", _text(explanation.seed)),
        ("walk", " > ".join(map(str, explanation.walk)) or "none"),
        ("bucket", explanation.reason or f"{explanation.bucket} of {explanation.buckets}"),
        ("rule", _text(explanation.rule)),
        ("source", _text(explanation.source)),
        ("release", str(explanation.release)),
    ]


def _text(value: object) -> str:
    return "none" if value is None else str(value)
