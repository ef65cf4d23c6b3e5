"""Metrics as text: what is written is what a strict parser reads."""

from __future__ import annotations

import io

import pytest
from exposition import parsed_exposition

from rabbit_chx.rendering import Batch, Document, Gauge, PrometheusOutput, Table
from rabbit_chx.rendering.output import metrics_text

HOSTILE = 'a "b" \\ c\nd\\n, e="f"} é\U0001f407'


def test_metrics_are_read_as_they_are() -> None:
    metrics = [
        Gauge("a_ratio", "help \\ of\na", [({"name": HOSTILE, "b": ""}, 0.25), ({}, 1)]),
        Gauge("b", "b", []),
    ]
    found = parsed_exposition(metrics_text(metrics))
    assert list(found) == ["a_ratio", "b"]
    assert (found["a_ratio"].type, found["a_ratio"].help) == ("gauge", "help \\\\ of\\na")
    assert found["a_ratio"].values == {
        frozenset({("name", HOSTILE), ("b", "")}): 0.25,
        frozenset(): 1.0,
    }


MEASURED = Document("a", (), [Gauge("a", "a", [({"name": "é"}, 1)])])


def test_the_text_is_utf_8_whatever_the_encoding_of_the_stream() -> None:
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding="ascii")
    PrometheusOutput(stream).show(MEASURED)
    assert held.getvalue() == '# HELP a a\n# TYPE a gauge\na{name="é"} 1\n'.encode()
    text = io.StringIO()
    PrometheusOutput(text).show(MEASURED)
    assert text.getvalue() == held.getvalue().decode()


def test_results_that_come_one_by_one_have_no_metrics() -> None:
    with pytest.raises(TypeError, match="does not have metrics"):
        PrometheusOutput(io.StringIO()).show_each(Batch("row", Table((), ())))
