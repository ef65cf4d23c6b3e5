"""The plugin's chi-square table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rabbit_chx.analysis import uniformity_table


def test_uniformity_shows_both_figures(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("uniformity")
    expected = [row.result.statistic for row in uniformity_table()]
    assert [row["statistic"] for row in document["rows"]] == pytest.approx(expected, rel=1e-8)
    assert [row["published"] for row in document["rows"]][:3] == [0.5, 0.946, 2.939]
    own = answer("uniformity", "--pattern", "user-{n}", "--count", "5000")
    assert own["keys"] == 5000
    assert own["rows"][0]["statistic"] != document["rows"][0]["statistic"]
    text = shown("uniformity")
    assert "13.448" in text
    assert "0 of 19 statistics exceed" in text
