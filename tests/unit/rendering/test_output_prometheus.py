"""Metrics as text: what is written is what a strict parser reads."""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import pytest
from exposition import parsed_exposition

import rabbit_chx
from rabbit_chx.errors import InputError
from rabbit_chx.rendering.document import Batch, Document, Gauge, Table
from rabbit_chx.rendering.output import PrometheusOutput, metrics_text

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


@pytest.mark.parametrize("value", [3, 1.5, None, True, b"b", "\ud800"])
def test_the_value_of_a_label_is_its_text_in_unicode(value: object) -> None:
    (family,) = parsed_exposition(metrics_text([Gauge("a", "a", [({"worker": value}, 1)])])).values()
    assert family.value(worker=str(value).replace("\ud800", "?")) == 1


@pytest.mark.parametrize("name", ["a-b", "", "1a", "é", "a b", 'a"', "a\n", "__name__"])
def test_a_label_with_which_prometheus_would_refuse_all_metrics_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(name))):
        metrics_text([Gauge("a", "a", [({name: "x"}, 1)])])


def test_each_metric_has_a_sentence() -> None:
    """The literals of the product: some metrics are of reports that need a broker."""
    sentences = {}
    for path in Path(rabbit_chx.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) > 1:
                name, help_ = (getattr(argument, "value", None) for argument in call.args[:2])
                if call.func.id in ("Gauge", "Metric", "_count", "_figure") and isinstance(help_, str):
                    sentences[name] = help_
    assert sentences
    assert [name for name, text in sentences.items() if not re.fullmatch(r"[A-Z0-9].* .* .*\.", text)] == []


MEASURED = Document("a", (), gauges=[Gauge("a", "a", [({"name": "é"}, 1)])])


def test_the_text_is_utf_8_whatever_the_encoding_of_the_stream() -> None:
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding="ascii")
    PrometheusOutput(stream).show(MEASURED)
    assert held.getvalue() == '# HELP a a\n# TYPE a gauge\na{name="é"} 1\n'.encode()
    text = io.StringIO()
    PrometheusOutput(text).show(MEASURED)
    assert text.getvalue() == held.getvalue().decode()


def test_results_that_come_one_by_one_have_no_metrics() -> None:
    with pytest.raises(TypeError, match="has no such form"):
        PrometheusOutput(io.StringIO()).show_each(Batch("row", Table((), ())))
