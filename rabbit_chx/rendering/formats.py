"""The forms of a document, by the name that a user types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rabbit_chx.rendering.html import HtmlOutput
from rabbit_chx.rendering.output import ConsoleOutput, JsonOutput, MarkdownOutput, Output, PrometheusOutput


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format of results.

    Attributes:
        output: the class that writes it.
        use: its use, as the help of ``--output`` continues it after the name; empty for none.
        takes: what it writes of a result: its parts, its parts with their pictures, or its metrics.
    """

    output: type[Output]
    use: str = ""
    takes: Literal["report", "pictures", "metrics"] = "report"


#: The formats by name, in the order of the help.
FORMATS: Mapping[str, OutputFormat] = {
    "table": OutputFormat(ConsoleOutput),
    "json": OutputFormat(JsonOutput),
    "markdown": OutputFormat(MarkdownOutput, "is for a pull request"),
    "html": OutputFormat(HtmlOutput, "is one file for a browser", takes="pictures"),
    "prometheus": OutputFormat(
        PrometheusOutput, "for the textfile collector of a node exporter", takes="metrics"
    ),
}
