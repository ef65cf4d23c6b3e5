"""A rehearsed upgrade for people, as a page for a change request, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.notation import (
    matrix_json,
    matrix_table,
    outcome_json,
    outcome_text,
    percent,
    plural,
    release_json,
    ring_as_json,
    ring_text,
)
from rabbit_chx.rendering import Block, Facts, Line, Section, Table, TableColumn

if TYPE_CHECKING:
    from rabbit_chx.testing.rehearsal import ExchangeProof, UpgradeProof
    from rabbit_chx.topology.upgrade import UpgradePrediction
    from rabbit_chx.topology.upgrade_exchange import ExchangeUpgrade

__all__ = ["RehearseReport"]

_VERDICTS = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}
_MOST_MISMATCHES = 10


@dataclass(frozen=True, slots=True)
class RehearseReport:
    """A rehearsed upgrade.

    Attributes:
        prediction: what the mirror says.
        proof: what two brokers did; a text says why nothing was proven.
        source: what was rehearsed, in words.
        sample: where the keys come from, in words.
        shown: how many moved keys of each exchange are listed.
    """

    prediction: UpgradePrediction
    proof: UpgradeProof | str
    source: str
    sample: str
    shown: int

    def blocks(self) -> Iterator[Block]:
        """Return the sums, a row for each exchange, what to do, and what moves in each exchange."""
        prediction = self.prediction
        yield Section(
            f"Upgrade of RabbitMQ {prediction.before.version} to {prediction.after.version}",
            [Facts(list(self._facts()))],
        )
        yield self._table()
        yield from self._mismatches()
        if plan := list(self._plan()):
            yield Section("What happens, and what to do", plan)
        for one in prediction.exchanges:
            if one.moves_by_rule:
                yield Section(f"Exchange {one.name}", list(self._exchange(one)), folded=True)

    def _facts(self) -> Iterator[tuple[str, str]]:
        prediction = self.prediction
        yield "rehearsed", self.source
        yield "from", f"RabbitMQ {prediction.before}"
        yield "to", f"RabbitMQ {prediction.after}"
        yield "sample", f"{plural(max(self._keys(), default=0), 'key')} for each exchange: {self.sample}"
        for verdict, words in _VERDICTS.items():
            names = [one.name for one in prediction.exchanges if one.verdict == verdict]
            if names:
                yield words, ", ".join(names)
        yield from self._proof_facts()

    def _keys(self) -> Iterator[int]:
        return (len(one.sample.messages) for one in self.prediction.exchanges if one.sample is not None)

    def _proof_facts(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.proof, str):
            yield "proven", f"nothing: {self.proof}"
            return
        proof = self.proof
        where = f"{proof.origins[0]} and {proof.origins[1]}"
        said = f"{plural(proof.published, 'message')} on {where}: {proof.mismatches:,} of them are not as predicted"
        yield "proven" if proof.complete else "proven in part", said
        if not proof.same_rules:
            yield "", "these patches do not follow all rules of the releases that were asked for"

    def _table(self) -> Table:
        headings = ("exchange", "hashes", "keys of the sample", "moved", "measured", "of all keys", "verdict")
        numeric = (False, False, True, True, True, True, False)
        rows = [
            (
                one.name,
                one.hashes,
                "" if one.sample is None else len(one.sample.messages),
                "" if one.sample is None else len(one.sample.moved),
                self._measured(one),
                _of_all(one),
                _VERDICTS[one.verdict],
            )
            for one in self.prediction.exchanges
        ]
        return Table([TableColumn(*pair) for pair in zip(headings, numeric, strict=True)], rows)

    def _proof_of(self, one: ExchangeUpgrade) -> ExchangeProof | None:
        if isinstance(self.proof, str):
            return None
        return next((proof for proof in self.proof.exchanges if proof.name == one.name), None)

    def _measured(self, one: ExchangeUpgrade) -> object:
        proof = self._proof_of(one)
        return "" if proof is None or proof.left_out else proof.measured

    def _mismatches(self) -> Iterator[Block]:
        if isinstance(self.proof, str):
            return
        wrong = [(one.name, mismatch) for one in self.proof.exchanges for mismatch in one.mismatches]
        if wrong:
            headings = ("exchange", "release", "key", "predicted", "found")
            rows = [
                (
                    name,
                    one.release.version,
                    "(the ring)" if one.key is None else one.key,
                    one.predicted,
                    one.found,
                )
                for name, one in wrong[:_MOST_MISMATCHES]
            ]
            table = Table([TableColumn(heading, numeric=False) for heading in headings], rows)
            title = f"Not as predicted: {plural(len(wrong), 'mismatch').removesuffix('s')}"
            yield Section(title, [table])
        for one in self.proof.exchanges:
            if one.left_out:
                yield Line(f"{one.name} was not rehearsed on the brokers: {one.left_out}.")

    def _plan(self) -> Iterator[Block]:
        """Yield each thing that happens once, with the exchanges that it happens to and the cure for each."""
        together: dict[str, list[tuple[str, str]]] = {}
        for one in self.prediction.exchanges:
            for finding in one.findings:
                together.setdefault(finding.says, []).append((one.name, finding.cure))
        for number, (says, cures) in enumerate(together.items(), 1):
            names = ", ".join(dict.fromkeys(name for name, _ in cures))
            yield Line(f"({number}) {names}: {says}.")
            yield Facts([(name, cure) for name, cure in cures])

    def _exchange(self, one: ExchangeUpgrade) -> Iterator[Block]:
        facts = [("hashes", one.hashes)]
        if one.rings is not None:
            facts += [("before", ring_text(one.rings.before)), ("after", ring_text(one.rings.after))]
        proof = self._proof_of(one)
        if proof is not None and proof.in_arrays is not None:
            facts.append(
                ("in an array", f"{proof.in_arrays:,} of {plural(proof.compared, 'key')} stayed, measured")
            )
        yield Facts(facts)
        sample = one.sample
        if sample is None:
            return
        if not sample.moved:
            if one.exact is not None and one.exact.moved:
                yield matrix_table(one.exact, percent)
            return
        yield matrix_table(sample.matrix, int)
        if self.shown:
            yield Table(
                [TableColumn(heading, numeric=False) for heading in ("key", "before", "after")],
                [
                    (move.message.key, outcome_text(move.before), outcome_text(move.after))
                    for move in sample.moved[: self.shown]
                ],
            )
        if len(sample.moved) > self.shown:
            yield Line(f"and {plural(len(sample.moved) - self.shown, 'more key')}")

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command; it names every moved key of the sample."""
        prediction, proof = self.prediction, self.proof
        return {
            "format": "rabbit-chx/rehearse",
            "format_version": 1,
            "source": self.source,
            "from": release_json(prediction.before),
            "to": release_json(prediction.after),
            "sample": self.sample,
            "proven": not isinstance(proof, str) and proof.complete,
            "not_proven": proof if isinstance(proof, str) else None,
            "proof": None
            if isinstance(proof, str)
            else {
                "from": release_json(proof.before),
                "to": release_json(proof.after),
                "origins": list(proof.origins),
                "same_rules": proof.same_rules,
                "published": proof.published,
                "mismatches": proof.mismatches,
            },
            "exchanges": [self._exchange_json(one) for one in prediction.exchanges],
        }

    def _exchange_json(self, one: ExchangeUpgrade) -> dict[str, Any]:
        sample, rings = one.sample, one.rings
        return {
            "exchange": one.name,
            "hashes": one.hashes,
            "verdict": one.verdict,
            "order": None if rings is None else rings.order,
            "before": None if rings is None else ring_as_json(rings.before),
            "after": None if rings is None else ring_as_json(rings.after),
            "exact": one.exact and matrix_json(one.exact),
            "expected": one.expected,
            "sample": sample
            and {
                "keys": len(sample.messages),
                "moved": len(sample.moved),
                "refused_before": sample.refused(after=False),
                "refused_after": sample.refused(after=True),
                "matrix": matrix_json(sample.matrix),
                "moves": [
                    {
                        "key": move.message.key,
                        "before": outcome_json(move.before),
                        "after": outcome_json(move.after),
                    }
                    for move in sample.moved
                ],
            },
            "kept_in_array": one.kept_in_array,
            "proof": _proof_json(self._proof_of(one)),
            "findings": [
                {"kind": finding.kind, "says": finding.says, "cure": finding.cure} for finding in one.findings
            ],
        }


def _of_all(one: ExchangeUpgrade) -> str:
    if one.exact is not None:
        return percent(one.exact.moved)
    return "" if one.expected is None else f"about {one.expected:.1%}"


def _proof_json(proof: ExchangeProof | None) -> dict[str, Any] | None:
    if proof is None:
        return None
    return {
        "published": proof.published,
        "compared": proof.compared,
        "predicted": proof.predicted,
        "measured": proof.measured,
        "kept_in_array": proof.in_arrays,
        "left_out": proof.left_out,
        "mismatches": [
            {
                "release": one.release.version,
                "key": one.key,
                "predicted": one.predicted,
                "found": one.found,
            }
            for one in proof.mismatches
        ],
    }
