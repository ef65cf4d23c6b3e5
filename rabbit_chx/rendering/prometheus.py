"""Metrics in the text format of Prometheus, for the textfile collector of its node exporter.

The format is the "Text-based format" 0.0.4 of https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO, cast

from rabbit_chx.rendering.blocks import Report
from rabbit_chx.rendering.output import Record, write_utf8


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric with its values.

    Attributes:
        name: its name, of ``[a-zA-Z_:][a-zA-Z0-9_:]*``.
        help: what it is, with its unit.
        samples: labels and value, one for each set of labels.
    """

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


class MeasuredReport(Protocol):
    """A result that has metrics."""

    def metrics(self) -> Iterable[Gauge]:
        """Return the metrics, each name once."""


class PrometheusOutput:
    """For the textfile collector. The text is UTF-8, as Prometheus requires, whatever the encoding of the stream.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def show(self, report: Report) -> None:
        """Write the metrics of a result that has some.

        Args:
            report: the result to write, a `MeasuredReport`.
        """
        write_utf8(self._stream, metrics_text(cast("MeasuredReport", report).metrics()))

    def show_each(self, records: Iterable[Record]) -> None:
        """Raise an error, since results that come one by one have no metrics.

        Args:
            records: the results.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"there are no metrics of {records!r:.60}")


def metrics_text(metrics: Iterable[Gauge]) -> str:
    """Return metrics as text.

    Args:
        metrics: the metrics, each name once.
    """
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.name} gauge")
        for labels, value in metric.samples:
            pairs = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{pairs}}} {value!r}" if pairs else f"{metric.name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
