"""Policies: which names a pattern matches."""

from __future__ import annotations

import pytest

from rabbit_chx.topology import PolicyDefinition
from rabbit_chx.topology.arguments import policy_matches


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("[[:alpha:]]+", None), ("^[[:digit:]]", None), ("[q||]", True), ("[q&&]", True), ("[x", None)],
)
def test_patterns_that_python_may_read_otherwise_do_not_warn(pattern: str, *, matches: bool | None) -> None:
    policy = PolicyDefinition("p", pattern, definition={"expires": 1})
    assert policy_matches(policy, "q") is matches
