"""One result, several renderers. Tables as text and bars need the extra `cli` (rich)."""

from __future__ import annotations

from rabbit_chx.rendering.blocks import (
    Block,
    Facts,
    Figure,
    Line,
    Lines,
    Report,
    Section,
    Table,
    Verbatim,
    Ways,
)
from rabbit_chx.rendering.markdown import MarkdownOutput
from rabbit_chx.rendering.output import ConsoleOutput, JsonOutput, Output, Record
from rabbit_chx.rendering.progress import CountProgress, reading, sign_of_life
from rabbit_chx.rendering.prometheus import Gauge, PrometheusOutput
from rabbit_chx.rendering.table import TableColumn, printable, render_table

__all__ = [
    "Block",
    "ConsoleOutput",
    "CountProgress",
    "Facts",
    "Figure",
    "Gauge",
    "JsonOutput",
    "Line",
    "Lines",
    "MarkdownOutput",
    "Output",
    "PrometheusOutput",
    "Record",
    "Report",
    "Section",
    "Table",
    "TableColumn",
    "Verbatim",
    "Ways",
    "printable",
    "reading",
    "render_table",
    "sign_of_life",
]
