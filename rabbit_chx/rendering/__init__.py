"""One result, several renderers. Needs the extra `cli` (rich)."""

from __future__ import annotations

from rabbit_chx.rendering.blocks import Block, Facts, Line, Lines, Report, Section, Table, Verbatim
from rabbit_chx.rendering.markdown import MarkdownOutput
from rabbit_chx.rendering.output import ConsoleOutput, JsonOutput, Output, Record
from rabbit_chx.rendering.progress import CountProgress, sign_of_life
from rabbit_chx.rendering.prometheus import Gauge, PrometheusOutput
from rabbit_chx.rendering.table import TableColumn, printable, render_table

__all__ = [
    "Block",
    "ConsoleOutput",
    "CountProgress",
    "Facts",
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
    "printable",
    "render_table",
    "sign_of_life",
]
