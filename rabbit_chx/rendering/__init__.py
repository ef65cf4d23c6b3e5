"""Reports as text, JSON, Markdown, HTML or Prometheus metrics; progress of long operations."""

from __future__ import annotations

from rabbit_chx.rendering.document import (
    Batch,
    Block,
    Data,
    Document,
    Facts,
    Gauge,
    Line,
    Lines,
    Part,
    Section,
    Table,
    Verbatim,
    gauges_of,
)
from rabbit_chx.rendering.formats import FORMATS
from rabbit_chx.rendering.html import HtmlOutput
from rabbit_chx.rendering.output import (
    ConsoleOutput,
    JsonOutput,
    MarkdownOutput,
    PrometheusOutput,
)
from rabbit_chx.rendering.progress import CountProgress, clear_bar, reading, sign_of_life
from rabbit_chx.rendering.table import TableColumn, printable, render_table

__all__ = [
    "FORMATS",
    "Batch",
    "Block",
    "ConsoleOutput",
    "CountProgress",
    "Data",
    "Document",
    "Facts",
    "Gauge",
    "HtmlOutput",
    "JsonOutput",
    "Line",
    "Lines",
    "MarkdownOutput",
    "Part",
    "PrometheusOutput",
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
]
