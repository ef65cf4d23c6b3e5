"""The report of an upgrade: the keys of each exchange of a file that move, and the remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rabbit_chx.analysis.report_parts import matrix_table, numbers, texts
from rabbit_chx.analysis.wording import finding_as_json
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Section, Table
from rabbit_chx.routing import Release
from rabbit_chx.topology.upgrade import ExchangeUpgrade, Verdict
from rabbit_chx.words import percent

_VERDICTS: dict[Verdict, str] = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}


def upgrade_report(
    source: str, before: Release, after: Release, exchanges: Sequence[ExchangeUpgrade]
) -> Document:
    """Return a row for each exchange of a topology file, then the effects and remedies, then the movement between destinations."""
    releases = [("from", f"RabbitMQ {before}"), ("to", f"RabbitMQ {after}")]
    rows = [
        (exchange.name, exchange.hashes, _moved_text(exchange), _VERDICTS[exchange.verdict])
        for exchange in exchanges
    ]
    parts: list[Part] = [
        Data({"source": source, "release": before, "to_release": after}),
        Facts([("file", source), *releases]),
        Table(
            [*texts("exchange", "hashes"), *numbers("keys moved"), *texts("verdict")],
            rows,
            key="exchanges",
            value=lambda: list(map(_upgrade_as_json, exchanges)),
        ),
    ]
    if remedies := list(_remedies(exchanges)):
        parts.append(Section("Effects and remedies", remedies))
    parts += (
        Section(f"Exchange {exchange.name}", [matrix_table(exchange.exact, percent)], folded=True)
        for exchange in exchanges
        if exchange.exact is not None and exchange.exact.moved
    )
    return Document("upgrade", parts)


def _remedies(exchanges: Sequence[ExchangeUpgrade]) -> Iterator[Part]:
    """Yield each effect once, with its exchanges and the remedy for each."""
    together: dict[str, list[tuple[str, str]]] = {}
    for exchange in exchanges:
        for finding in exchange.findings:
            together.setdefault(finding.message, []).append((exchange.name, finding.fix))
    for number, (message, fixes) in enumerate(together.items(), 1):
        names = ", ".join(dict.fromkeys(name for name, _ in fixes))
        yield Line(f"({number}) {names}: {message}.")
        yield Facts(fixes)


def _upgrade_as_json(exchange: ExchangeUpgrade) -> dict[str, Any]:
    return {
        "exchange": exchange.name,
        "hashes": exchange.hashes,
        "verdict": exchange.verdict,
        "moved": exchange.moved,
        "exact": exchange.exact,
        "order": exchange.order,
        "findings": [finding_as_json(finding) for finding in exchange.findings],
    }


def _moved_text(exchange: ExchangeUpgrade) -> str:
    if exchange.moved is None:
        return ""
    return f"about {exchange.moved:.1%}" if exchange.exact is None else percent(exchange.moved)
