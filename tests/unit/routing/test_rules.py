"""The rules of the releases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.routing import rules
from rabbit_chx.routing.release import NEWEST_COMPARED, NEWEST_PATCHES, Release, Rule
from rabbit_chx.routing.rules import RULES


@pytest.mark.parametrize(
    ("rule", "follow", "do_not"),
    [
        (
            rules.DUPLICATES_APPEND,
            ["3.10.0", "3.10.5"],
            ["3.10.6", "3.11.0", "3.13.7", "4.3.6"],
        ),
        (
            rules.WEIGHT_IS_REFUSED,
            ["4.2.6", "4.3.0-rc.1", "4.3.0", "4.3.6"],
            ["3.10.0", "3.13.7", "4.0.5", "4.1.8", "4.2.5"],
        ),
    ],
    ids=["duplicates", "cap"],
)
def test_a_release_follows_exactly_the_rules_of_its_time(
    rule: Rule, follow: list[str], do_not: list[str]
) -> None:
    assert [version for version in follow + do_not if Release(version).follows(rule)] == follow


@pytest.mark.filterwarnings("ignore:RabbitMQ .* is newer")
@given(st.tuples(st.integers(4, 99), st.integers(4, 99), st.integers(0, 999)))
def test_newer_versions_follow_the_newest_rules(numbers: tuple[int, int, int]) -> None:
    release = Release(".".join(map(str, numbers)))
    assert (release.store, release.store_known) == ("khepri", True)
    for rule in RULES:
        assert release.follows(rule) == NEWEST_COMPARED.follows(rule), (
            f"{rule} begins after NEWEST_COMPARED: add the release to rabbit_chx/routing/release.py"
        )


SUBJECTS = {
    "header value": ["3.10.0", "3.12.14", "3.13.0", "4.3.6"],
    "header missing": ["3.10.0", "3.12.14", "3.13.0", "3.13.6", "3.13.7", "4.3.6"],
    "header given twice": ["3.10.0", "3.12.14", "3.13.0", "4.3.6"],
    "header with an empty array or table": ["3.13.0", "4.3.4", "4.3.5"],
    "full restart": ["3.10.0", "3.12.0", "4.2.9", "4.3.0"],
    "x-modulus-hash": ["3.10.0", "3.13.0", "4.2.9", "4.3.0", "4.3.6"],
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_release_has_one_rule_for_each_subject(subject: str) -> None:
    for version in SUBJECTS[subject]:
        default = Release(version)
        stores: tuple[Any, ...] = (default.store,) if default.store_known else ("mnesia", "khepri")
        for store in stores:
            release = Release(version, store)
            assert len([rule for rule in RULES if rule.about == subject and release.follows(rule)]) == 1


def test_the_newest_patch_of_a_series_follows_the_last_rules_of_its_series() -> None:
    for version in NEWEST_PATCHES:
        major, minor, _ = Release(version).numbers
        far = Release(f"{major}.{minor}.999")
        assert [rule for rule in RULES if Release(version).follows(rule)] == [
            rule for rule in RULES if far.follows(rule)
        ]


def test_no_rule_is_missing_from_the_table() -> None:
    defined = [value for value in vars(rules).values() if isinstance(value, Rule)]
    missing = [rule for rule in defined if rule not in RULES]
    assert missing == [], "add it to RULES in rabbit_chx/routing/rules.py"
    assert list(RULES) == defined, "RULES has the order of the definitions"


def test_each_rule_is_used() -> None:
    package = Path(rules.__file__).parents[1]
    sources = [
        file.read_text(encoding="utf-8") for file in package.rglob("*.py") if file != Path(rules.__file__)
    ]
    used = {word for source in sources for word in re.findall(r"[A-Z][A-Z_0-9]+", source)}
    names = {name for name, value in vars(rules).items() if isinstance(value, Rule)}
    assert names - used == set(), "use it where the routing, a check or a comparison follows it, or delete it"
