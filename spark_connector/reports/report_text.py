"""A `WriteReport` as text. An executor loads this, so it does not use the renderers of `rabbit_chx.rendering`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.reports.write_report import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spark_connector.reports.write_report import TaskReport, WriteReport

__all__ = ["render"]


def render(report: WriteReport) -> str:
    """Totals, rows per predicted queue, partitions, samples and notes."""
    batch = f", batch {report.batch_id}" if report.batch_id is not None else ""
    parts = [
        f"write {report.write_id or 'unnamed'}{batch} to exchange {report.exchange!r}, {report.seconds:.1f} s",
        *_failure(report),
        table(("", ""), ((name.replace("_", " "), getattr(report, name)) for name in TOTALS)),
    ]
    if report.predicted:
        queues = sorted(report.predicted.items())
        parts.append(table((f"queue, predicted ({report.ring_provenance} ring)", "rows"), queues))
    if report.tasks:
        parts.append(
            table(("partition", "attempt", "rows", "seconds", "rows/s"), map(_of_task, report.tasks))
        )
    if report.samples:
        samples = (
            (
                f"{sample.partition}",
                "" if sample.row is None else f"{sample.row}",
                sample.key_hash or "",
                sample.reason,
            )
            for sample in report.samples
        )
        parts.append(table(("partition", "row", "hash of key", "not confirmed because"), samples))
    parts += [f"note: {note}" for note in report.notes]
    return "\n\n".join(parts)


def _failure(report: WriteReport) -> Iterator[str]:
    if report.failed:
        unfinished = "the other tasks" if report.unfinished is None else f"{report.unfinished:,} other tasks"
        yield (
            f"FAILED: {len(report.tasks):,} tasks finished, and their counts stand below; rows of {unfinished} "
            "may be in the queues as well"
        )


def _of_task(task: TaskReport) -> tuple[object, ...]:
    rate = task.rows / task.seconds if task.seconds else 0.0
    return str(task.partition), task.attempt, task.rows, f"{task.seconds:.1f}", f"{rate:,.0f}"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they must be, the first and all texts to the left; numbers with thousands apart."""
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [list(headings), *cells] if any(headings) else cells
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    right = [all(_is_number(row[i]) for row in cells) and i > 0 for i in range(len(headings))]
    return "\n".join(
        " "
        + "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in shown
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").isdigit()
