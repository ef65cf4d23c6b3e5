"""Versions, stores and rules."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.routing.release import (
    DUPLICATES_APPEND,
    MODULUS_BY_BINDING_KEY,
    MODULUS_UNORDERED,
    NEWEST,
    NEWEST_PATCHES,
    RESTART_KEEPS,
    RESTART_SHUFFLES,
    RULES,
    UNBIND_SHIFTS_BY_WEIGHT,
    UNSORTED_ENDS,
    WEIGHT_IS_CAPPED,
    Release,
    Rule,
    RuleRow,
    rule_rows,
)


@pytest.mark.parametrize(
    ("version", "store", "known"),
    [
        ("3.7.8", "mnesia", True),
        ("3.12.14", "mnesia", True),
        ("3.13.0", "mnesia", False),
        ("4.1.8", "mnesia", False),
        ("4.2.0", "khepri", False),
        ("4.2.9", "khepri", False),
        ("4.3.0", "khepri", True),
        ("4.3.0-rc.1", "khepri", True),
    ],
)
def test_the_default_store_is_that_of_a_fresh_broker(version: str, store: str, known: bool) -> None:  # noqa: FBT001
    release = Release(version)
    assert (release.store, release.store_known) == (store, known)


def test_a_given_store_is_known() -> None:
    given_ = Release("4.0.5", store="khepri")
    assert (given_.store, given_.store_known) == ("khepri", True)
    assert given_ != Release("4.0.5") == Release("4.0.5", store="mnesia")
    assert str(Release("4.0.5")) == "4.0.5 (mnesia?)"
    assert str(given_) == "4.0.5 (khepri)"


@pytest.mark.parametrize(
    ("version", "store"), [("3.12.0", "khepri"), ("4.3.0", "mnesia"), ("4.3.99", "mnesia"), ("4.1.0", "etcd")]
)
def test_a_store_that_the_version_cannot_have_is_refused(version: str, store: Any) -> None:
    with pytest.raises(InputError, match=f"cannot have the store '{store}'"):
        Release(version, store=store)


@pytest.mark.parametrize("version", ["3.7.7", "3.6.16", "0.0.0"])
def test_before_3_7_8_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"3\.7\.8"):
        Release(version)


@pytest.mark.parametrize(
    "version", ["", "4", "4.3", "4.3.x", "v4.3.6", "4.3.6\n", " 4.3.6", "4.3.6-", "4.3.٦", "4.3.6.1", None, 4]
)
def test_what_is_no_version_is_refused(version: Any) -> None:
    with pytest.raises(InputError, match="no RabbitMQ version"):
        Release(version)


@pytest.mark.parametrize(
    ("series", "version"), [("3.8", "3.8.35"), ("3.13", "3.13.7"), ("4.0", "4.0.9"), ("4.3", "4.3.6")]
)
def test_a_series_is_its_newest_known_patch(series: str, version: str) -> None:
    assert Release.newest_of(series) == Release(version)


def test_the_newest_patch_of_a_series_follows_the_last_rules_of_its_series() -> None:
    for version in NEWEST_PATCHES:
        major, minor, _ = Release(version).numbers
        far = Release(f"{major}.{minor}.999")
        assert [rule for rule in RULES if Release(version).follows(rule)] == [
            rule for rule in RULES if far.follows(rule)
        ]


def test_a_series_takes_a_store() -> None:
    assert Release.newest_of("4.0", "khepri") == Release("4.0.9", "khepri")
    with pytest.raises(InputError, match="cannot have the store 'mnesia'"):
        Release.newest_of("4.3", "mnesia")


@pytest.mark.parametrize("series", ["", "4", "4.3.6", "4.4", "3.6", "4.3 ", "04.3", None, 4.3])
def test_what_is_no_known_series_is_refused(series: Any) -> None:
    with pytest.raises(
        InputError, match=r"no RabbitMQ series known here: give one of 3\.7, .* 4\.3, or a version"
    ):
        Release.newest_of(series)


def test_order() -> None:
    versions = [
        "3.7.8", "3.8.9", "3.8.10", "3.13.7", "3.13.7+suffix", "4.3.0-alpha.1", "4.3.0-beta.2",
        "4.3.0-beta.10", "4.3.0-rc.1", "4.3.0", "4.3.6", "4.3.10",
    ]  # fmt: skip
    releases = [Release(version) for version in versions]
    assert all(older < newer for older, newer in combinations(releases, 2))
    assert Release("4.0.5", store="khepri") < Release("4.0.5", store="mnesia")
    assert Release("3.8.9") <= Release("3.8.9")


@pytest.mark.parametrize(
    ("rule", "follow", "do_not"),
    [
        (
            DUPLICATES_APPEND,
            ["3.7.8", "3.8.35", "3.9.0", "3.9.20", "3.10.0", "3.10.5"],
            ["3.9.21", "3.9.29", "3.10.6", "3.11.0", "3.13.7", "4.3.6"],
        ),
        (
            UNBIND_SHIFTS_BY_WEIGHT,
            ["3.7.8", "3.8.23", "3.9.0", "3.9.8"],
            ["3.8.24", "3.8.35", "3.9.9", "3.10.0", "4.3.6"],
        ),
        (UNSORTED_ENDS, ["3.7.8", "3.7.9"], ["3.7.10", "3.8.0", "4.3.6"]),
        (
            WEIGHT_IS_CAPPED,
            ["4.2.6", "4.3.0-rc.1", "4.3.0", "4.3.6"],
            ["3.7.8", "3.13.7", "4.0.5", "4.1.8", "4.2.5"],
        ),
    ],
    ids=["duplicates", "shift", "unsorted", "cap"],
)
def test_rules(rule: Rule, follow: list[str], do_not: list[str]) -> None:
    assert [version for version in follow + do_not if Release(version).follows(rule)] == follow


@pytest.mark.filterwarnings("ignore:RabbitMQ .* is newer")
@given(st.tuples(st.integers(4, 99), st.integers(4, 99), st.integers(0, 999)))
def test_newer_versions_follow_the_newest_rules(numbers: tuple[int, int, int]) -> None:
    release = Release(".".join(map(str, numbers)))
    assert (release.store, release.store_known) == ("khepri", True)
    for rule in RULES:
        assert release.follows(rule) == NEWEST.follows(rule)


def test_newer_versions_are_said_to_be_unknown_once() -> None:
    for version in ("4.4.0-beta.7", "104.0.0"):
        with pytest.warns(UserWarning, match=f"RabbitMQ {version} is newer than the rules known here"):
            Release(version)
        Release(version)
        Release(version, store="khepri")
    Release("4.3.99")


SUBJECTS = {
    "header value": ["3.7.8", "3.12.14", "3.13.0", "4.3.6"],
    "header missing": ["3.7.8", "3.12.14", "3.13.0", "3.13.6", "3.13.7", "4.3.6"],
    "header given twice": ["3.7.8", "3.12.14", "3.13.0", "4.3.6"],
    "header with an empty array or table": ["3.13.0", "4.3.4", "4.3.5"],
    "full restart": ["3.7.8", "3.8.3", "3.8.4", "3.8.5", "3.8.9", "3.8.10", "3.12.0", "4.2.9", "4.3.0"],
    "x-modulus-hash": ["3.7.8", "3.13.0", "4.2.9", "4.3.0", "4.3.6"],
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_release_has_one_rule_for_each_subject(subject: str) -> None:
    for version in SUBJECTS[subject]:
        default = Release(version)
        stores: tuple[Any, ...] = (default.store,) if default.store_known else ("mnesia", "khepri")
        for store in stores:
            rows = rule_rows(Release(version, store))
            assert len([row for row in rows if row.rule == subject]) == 1


@pytest.mark.parametrize(
    ("rule", "version", "store", "follows"),
    [
        (RESTART_KEEPS, "4.0.5", "khepri", True),
        (RESTART_KEEPS, "4.0.5", "mnesia", False),
        (RESTART_SHUFFLES, "4.0.5", "khepri", False),
        (RESTART_SHUFFLES, "4.0.5", "mnesia", True),
        (MODULUS_UNORDERED, "4.2.9", "khepri", True),
        (MODULUS_UNORDERED, "4.2.9", "mnesia", False),
        (MODULUS_BY_BINDING_KEY, "4.2.9", "mnesia", True),
        (MODULUS_BY_BINDING_KEY, "4.3.0", "khepri", False),
    ],
)
def test_rules_that_take_a_store(rule: Rule, version: str, store: Any, follows: bool) -> None:  # noqa: FBT001
    assert Release(version, store).follows(rule) == follows


def test_the_table_of_rules() -> None:
    rows = rule_rows()
    assert rows[0] == RuleRow(
        "routing key", "3.7.8", "", "", "the routing key's bytes through phash2; CC and BCC do not count",
        "rabbit_exchange_type_consistent_hash.erl value_to_hash/2, jump_consistent_hash/2",
    )  # fmt: skip
    duplicates = [row[1:3] for row in rows if row.rule == "second binding of a destination"]
    assert duplicates == [("3.7.8", "3.9.21"), ("3.10.0", "3.10.6")]
    assert {row.rule for row in rows} >= SUBJECTS.keys()
    assert len(rows) == sum(len(rule.versions) for rule in RULES)
    assert [
        row[1:3] for row in rule_rows(Release("3.10.5")) if row.rule == "second binding of a destination"
    ] == [("3.10.0", "3.10.6")]


def test_a_release_is_a_value() -> None:
    release = Release("4.0.5", store="khepri")
    assert pickle.loads(pickle.dumps(release)) == release  # noqa: S301
    assert len({release, Release("4.0.5", store="khepri"), Release("4.0.5")}) == 2
    assert eval(repr(release)) == release  # noqa: S307
    with pytest.raises(AttributeError):
        release.store = "mnesia"  # type: ignore[misc]


@pytest.mark.parametrize("version", ["9" * 5_000 + ".0.0", "4.3.0-" + "9" * 5_000, "4.3." + "0" * 300])
def test_versions_without_end_are_refused(version: str) -> None:
    with pytest.raises(InputError, match="is no RabbitMQ version") as error:
        Release(version)
    assert len(str(error.value)) < 200


def test_rows_are_of_a_release() -> None:
    release: Any = "4.3.6"
    with pytest.raises(InputError, match="give a Release"):
        rule_rows(release)
