"""The rules of releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rabbit_chx.routing import Release, rule_rows


def test_rules_are_those_of_the_release(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    release = Release("4.2.0", "mnesia")
    rows = answer("rules", "--release", "4.2.0", "--store", "mnesia")["rules"]
    assert [(row["rule"], row["what"]) for row in rows] == [
        (row.rule, row.what) for row in rule_rows(release)
    ]
    assert len(answer("rules")["rules"]) == len(rule_rows())
    assert "the integer itself is the seed" in shown("rules", "--release", "4.3.6")
    assert "the integer itself is the seed" not in shown("rules", "--release", "3.12.14")
