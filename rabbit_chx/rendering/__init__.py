"""Reports as text, JSON, Markdown or Prometheus metrics; progress of long operations."""

from __future__ import annotations

from rabbit_chx.rendering.output import (
    FORMATS,
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
    gauges_of,
    table_of,
)
from rabbit_chx.rendering.progress import CountProgress, clear_bar, reading, sign_of_life
from rabbit_chx.rendering.table import TableColumn, printable, render_table

__all__ = [
    "FORMATS",
    "Block",
    "ConsoleOutput",
    "CountProgress",
    "Facts",
    "Gauge",
    "JsonOutput",
    "Line",
    "Lines",
    "MarkdownOutput",
    "PrometheusOutput",
    "Record",
    "Report",
    "Section",
    "Table",
    "TableColumn",
    "Verbatim",
    "clear_bar",
    "gauges_of",
    "printable",
    "reading",
    "render_table",
    "sign_of_life",
    "table_of",
]
