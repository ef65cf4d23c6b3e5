"""Policies: which settings and patterns a release refuses, and which names a pattern matches."""

from __future__ import annotations

import pytest
from topologies import problems_in

from rabbit_chx.routing import Release
from rabbit_chx.topology import PolicyDefinition
from rabbit_chx.topology.arguments import declaration_faults
from rabbit_chx.topology.policies import policy_matches


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ('pattern = "^o"\ndefinition = { expires = 0 }', "definition.expires: the value must be an integer of 1 or more (milliseconds); write 1 or more"),
        ('pattern = "^o"\ndefinition = { ha-mode = "all" }', "definition.ha-mode: policies of RabbitMQ 4.3.6 do not have this setting; remove it"),
        ('pattern = "^o"\ndefinition = { delayed-retry-type = "all" }', "definition.delayed-retry-type: it requires delayed-retry-min; write delayed-retry-min too"),
        ('pattern = "(o"\ndefinition = { expires = 1 }', 'pattern: the pattern is not a regular expression: missing ), unterminated subpattern at position 0; write a regular expression, such as "^orders\\\\." for all names that begin with orders.'),
        ('pattern = "*"\ndefinition = { expires = 1 }', 'pattern: the pattern is not a regular expression: nothing to repeat at position 0; write a regular expression, such as "^orders\\\\." for all names that begin with orders.'),
    ],
)  # fmt: skip
def test_a_policy_that_the_newest_release_refuses(policy: str, problem: str) -> None:
    assert problems_in(f'[[policies]]\nname = "p"\n{policy}', Release("4.3.6")) == [f"policies[0].{problem}"]


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
