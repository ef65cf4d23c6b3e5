"""Policies: which settings and patterns a release refuses, and which names a pattern matches."""

from __future__ import annotations

import pytest

from rabbit_chx.routing import Release
from rabbit_chx.topology import PolicyDefinition
from rabbit_chx.topology.rules.arguments import declaration_faults
from rabbit_chx.topology.rules.policies import policy_matches


@pytest.mark.parametrize("pattern", ["a++", r"\p{L}", "[[:alpha:]]", r"\Qa(\E", "(*UTF8)a", "^*"])
def test_patterns_of_pcre_are_no_problem(pattern: str) -> None:
    policy = PolicyDefinition("p", pattern, definition={"expires": 1})
    assert declaration_faults(policy, Release("4.3.6")) == []


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("[[:alpha:]]+", None), ("^[[:digit:]]", None), ("[q||]", True), ("[q&&]", True), ("[x", None)],
)
def test_patterns_that_python_may_read_otherwise_do_not_warn(pattern: str, *, matches: bool | None) -> None:
    policy = PolicyDefinition("p", pattern, definition={"expires": 1})
    assert policy_matches(policy, "q") is matches
    assert bool(declaration_faults(policy, Release("4.3.6"))) is (pattern == "[x")
