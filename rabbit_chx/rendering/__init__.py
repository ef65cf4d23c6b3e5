"""Reports as text, JSON, Markdown or Prometheus metrics; progress of long operations."""

from __future__ import annotations

from rabbit_chx.rendering.fields import (
    SPREAD,
    Metric,
    facts_of,
    gauges_of,
    json_fields,
    or_dash,
    shown,
    table_of,
)
from rabbit_chx.rendering.output import (
    Block,
    ConsoleOutput,
    Facts,
    Gauge,
    JsonOutput,
    Line,
    Lines,
    MarkdownOutput,
    PrometheusOutput,
    Record,
    Report,
    Section,
    Table,
    Verbatim,
)
from rabbit_chx.rendering.progress import CountProgress, clear_bar, reading, sign_of_life
from rabbit_chx.rendering.table import TableColumn, printable, render_table

__all__ = [
    "SPREAD",
    "Block",
    "ConsoleOutput",
    "CountProgress",
    "Facts",
    "Gauge",
    "JsonOutput",
    "Line",
    "Lines",
    "MarkdownOutput",
    "Metric",
    "PrometheusOutput",
    "Record",
    "Report",
    "Section",
    "Table",
    "TableColumn",
    "Verbatim",
    "clear_bar",
    "facts_of",
    "gauges_of",
    "json_fields",
    "or_dash",
    "printable",
    "reading",
    "render_table",
    "shown",
    "sign_of_life",
    "table_of",
]
