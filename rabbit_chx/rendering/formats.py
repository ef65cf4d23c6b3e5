"""The forms of a document, by the name that a user types."""

from __future__ import annotations

from collections.abc import Mapping

from rabbit_chx.rendering.html import HtmlOutput
from rabbit_chx.rendering.output import ConsoleOutput, JsonOutput, MarkdownOutput, Output, PrometheusOutput

#: The formats by name, in the order of the help.
FORMATS: Mapping[str, type[Output]] = {
    "table": ConsoleOutput,
    "json": JsonOutput,
    "markdown": MarkdownOutput,
    "html": HtmlOutput,
    "prometheus": PrometheusOutput,
}
