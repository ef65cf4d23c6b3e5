"""``rabbit-chx compare``: which keys move from one release or ring to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.analysis import (
    Comparison,
    ModuloMap,
    MovementMatrix,
    Place,
    Refused,
    check_comparable,
    compare_modulo,
    compare_rings,
    modulo_movement,
    movement_matrix,
)
from rabbit_chx.cli.given_rings import two_ring_options
from rabbit_chx.cli.notation import (
    matrix_json,
    matrix_table,
    outcome_json,
    outcome_text,
    percent,
    plural,
    ring_as_json,
    source_as_json,
    source_fact,
)
from rabbit_chx.cli.option_groups import (
    HashedKeys,
    hashing_options,
    output_option,
)
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, Outcome
from rabbit_chx.cli.sample_options import AskedSample, Sample, sample_options
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import Block, Facts, Line, Table, TableColumn, sign_of_life

if TYPE_CHECKING:
    from rabbit_chx.routing import KeyMap

__all__ = ["compare"]

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class CompareReport:
    """The keys that move between two rings.

    Attributes:
        before: the ring before the change, or an exchange without one.
        after: the same after the change.
        exact: the exact movement over all seeds; None where the releases may hash a header differently.
        sample: the movement of a sample; None without a sample.
        keys: the keys of the sample.
        shown: how many of the moved keys the text names.
    """

    before: KeyMap | ModuloMap
    after: KeyMap | ModuloMap
    exact: MovementMatrix | None
    sample: Comparison | None
    keys: Sequence[str]
    shown: int

    @property
    def differs(self) -> bool:
        """Whether any key moves."""
        return bool((self.exact and self.exact.moved) or (self.sample and self.sample.moved))

    def blocks(self) -> Iterator[Block]:
        """Return the sums, then from where to where keys move, then the keys."""
        facts = [("before", source_fact(self.before)[1]), ("after", source_fact(self.after)[1])]
        if self.exact:
            by = "hashes" if isinstance(self.before, ModuloMap) else "2^21 seeds"
            facts.append(("moved", f"{percent(self.exact.moved)} of all keys, by all {by}"))
        if self.sample:
            part = percent(len(self.sample.moved) / self.sample.values) if self.sample.values else percent(0)
            facts.append(
                ("moved", f"{len(self.sample.moved):,} of {plural(self.sample.values, 'key')}, {part}")
            )
            facts += _refusals("before", [move.before for move in self.sample.moved])
            facts += _refusals("after", [move.after for move in self.sample.moved])
        yield Facts(facts)
        if self.sample and self.sample.moved:
            yield matrix_table(self.sample.matrix, int)
            if self.shown:
                yield Table(
                    [TableColumn(heading, numeric=False) for heading in ("key", "before", "after")],
                    [
                        (self.keys[move.position], outcome_text(move.before), outcome_text(move.after))
                        for move in self.sample.moved[: self.shown]
                    ],
                )
            if len(self.sample.moved) > self.shown:
                yield Line(f"and {plural(len(self.sample.moved) - self.shown, 'more key')}")
        elif self.exact and self.exact.moved:
            yield matrix_table(self.exact, percent)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command; it names every moved key."""
        return {
            "format": "rabbit-chx/compare",
            "format_version": 1,
            "before": _source_json(self.before),
            "after": _source_json(self.after),
            "exact": self.exact and matrix_json(self.exact),
            "sample": self.sample
            and {
                "keys": self.sample.values,
                "moved": len(self.sample.moved),
                "refused_before": self.sample.refused_before,
                "refused_after": self.sample.refused_after,
                "matrix": matrix_json(self.sample.matrix),
                "moves": [
                    {
                        "key": self.keys[move.position],
                        "before": outcome_json(move.before),
                        "after": outcome_json(move.after),
                    }
                    for move in self.sample.moved
                ],
            },
        }


def _source_json(source: KeyMap | ModuloMap) -> dict[str, Any]:
    return source_as_json(source) if isinstance(source, ModuloMap) else ring_as_json(source)


def _refusals(when: str, outcomes: Sequence[Place | Refused]) -> list[tuple[str, str]]:
    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Refused)]
    return [("refused", f"{len(reasons):,} {when} alone: {reasons[0]}")] if reasons else []


@click.command(
    epilog="Example: rabbit-chx compare --bind q1=1 --bind q2=1 --release 3.12.14 --to-release 4.3.6 "
    "--hash-header tenant --pattern 'tenant-{n}' --count 1000",
    short_help="Which keys move to another release or ring.",
)
@two_ring_options
@hashing_options
@sample_options()
@click.option("--show", type=click.IntRange(0), help=f"How many moved keys to list.  [default: {_SHOWN}]")
@output_option
def compare(
    *,
    ring: KeyMap,
    other: KeyMap | ModuloMap,
    hashed: HashedKeys,
    sample: AskedSample,
    show: int | None,
    output: str,
) -> Outcome:
    """Compare two releases, or two rings: which keys move?

    The one ring is that of --bind, --ring or --exchange: give one of them. The other is that of --to-bind,
    --to-ring or --to-exchange, or the same buckets under --to-release. An exchange is one of a live broker,
    or of --definitions. Both may be of type x-modulus-hash, or super streams: for bindings say so by --exchange-type.

    The exit code is 1 if any key moves. Without a sample the answer is exact, over all 2^21 seeds. Two
    releases may hash a header differently; then a sample is needed.
    """
    hashing, read = hashed.hashing, sample.read()
    if read is None and show is not None:
        raise InputError(
            f"--show {show} says how many keys of a sample to list: give --keys or --pattern too"
        )
    shown = _SHOWN if show is None else show
    if hashed.modulo is not None and isinstance(other, ModuloMap):
        report = _of_modulo(hashed.modulo, other, read, shown)
        return Outcome(output, report, code=DIFFERENCE if report.differs else DONE)
    assert not isinstance(other, ModuloMap)  # noqa: S101  # two_ring_options gives two of a kind
    alike = hashing.hash_header is None or ring.release == other.release
    if read is None and not alike:
        raise InputError(
            f"RabbitMQ {ring.release.version} and {other.release.version} may hash the header {hashing.hash_header!r} "
            "differently: give a sample, as --keys FILE or --pattern TEXT"
        )
    compared = None
    if read is not None:
        with sign_of_life(plural(len(read.keys), "key")), read.named(hashed, ring):
            compared = compare_rings(list(map(hashed.value, read.keys)), ring, other, hashing)
    report = CompareReport(
        before=ring,
        after=other,
        exact=movement_matrix(ring, other) if alike else None,
        sample=compared,
        keys=[] if read is None else read.keys,
        shown=shown,
    )
    return Outcome(output, report, code=DIFFERENCE if report.differs else DONE)


def _of_modulo(before: ModuloMap, after: ModuloMap, read: Sample | None, shown: int) -> CompareReport:
    """Return the report of two exchanges of type ``x-modulus-hash``, or of two super streams."""
    check_comparable(before, after)
    keys = [] if read is None else read.keys
    compared = None if read is None else compare_modulo(keys, before, after)
    return CompareReport(before, after, modulo_movement(before, after), compared, keys, shown)
