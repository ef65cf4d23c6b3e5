"""Versions, stores and rules."""

from __future__ import annotations

import pickle
import re
from itertools import combinations
from typing import Any

import pytest
from blocks import ROOT

from rabbit_chx.errors import InputError
from rabbit_chx.routing.release import NEWEST_PATCHES, Release


@pytest.mark.parametrize(
    ("version", "store", "known"),
    [
        ("3.10.0", "mnesia", True),
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


_NONE = ["", "4", "4.3.x", "v4.3.6", "4.3.6\n", " 4.3.6", "4.3.6-", "4.3.٦", "4.3.6.1", "4.3 ", None, 4, 4.3]
_ENDLESS = ["9" * 5_000 + ".0.0", "4.3.0-" + "9" * 5_000, "4.3." + "0" * 300]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(((version,), "is not a RabbitMQ version") for version in _NONE + _ENDLESS),
        *(((version,), f"^RabbitMQ {version} is not supported: the rules of 3.10.0 and newer") for version in ("3.9.29", "0.0.0")),
        *(((series,), r"is not a known RabbitMQ series: pass one of 3\.10, .* 4\.4, or a version") for series in ("4.5", "3.9", "04.3")),
        (("3.12.0", "khepri"), "cannot have the store 'khepri'"),
        *(((version, "mnesia"), "cannot have the store 'mnesia'") for version in ("4.3", "4.3.0", "4.3.99")),
        (("4.1.0", "etcd"), "cannot have the store 'etcd'"),
    ],
)  # fmt: skip
def test_what_is_no_release_is_refused(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        Release(*given)
    assert len(str(error.value)) < 250


def test_a_series_is_its_newest_known_patch() -> None:
    for version in NEWEST_PATCHES:
        series = version.rpartition(".")[0]
        assert Release(series) == Release(version)
        assert Release(series).version == version
    assert Release("4.0", "khepri") == Release("4.0.9", "khepri")


def test_releases_are_ordered_by_version_and_store() -> None:
    versions = [
        "3.10.0", "3.10.9", "3.10.10", "3.13.7", "3.13.7+suffix", "4.3.0-alpha.1", "4.3.0-beta.2",
        "4.3.0-beta.10", "4.3.0-rc.1", "4.3.0", "4.3.6", "4.3.10",
    ]  # fmt: skip
    releases = [Release(version) for version in versions]
    assert all(older < newer for older, newer in combinations(releases, 2))
    assert Release("4.0.5", store="khepri") < Release("4.0.5", store="mnesia")
    assert Release("3.10.9") <= Release("3.10.9")


def test_newer_versions_are_reported_as_unknown_once() -> None:
    for version in ("4.5.0-beta.7", "104.0.0"):
        with pytest.warns(UserWarning, match=f"RabbitMQ {version} is newer than the rules known here"):
            Release(version)
        Release(version)
        Release(version, store="khepri")
    for version in ("4.3.99", "4.4", "4.4.0-beta.7", "4.4.99"):
        Release(version)


def test_a_release_is_a_value() -> None:
    release = Release("4.0.5", store="khepri")
    assert pickle.loads(pickle.dumps(release)) == release  # noqa: S301
    assert len({release, Release("4.0.5", store="khepri"), Release("4.0.5")}) == 2
    assert eval(repr(release)) == release  # noqa: S307
    with pytest.raises(AttributeError):
        release.store = "mnesia"  # type: ignore[misc]


def test_the_pages_name_the_newest_patches() -> None:
    """A page that says which patch is the newest is changed with NEWEST_PATCHES."""
    folder = ROOT / "docs"
    pages = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.md")}
    for name in ("how-it-routes.md", "reference/support.md"):
        for patch in NEWEST_PATCHES[-2:]:
            assert patch in pages[name], (name, patch)
    for name, text in pages.items():
        named = re.findall(r"newest (?:known )?patch(?: of [\d.]+)?, (\d+\.\d+\.\d+)", " ".join(text.split()))
        assert set(named) <= set(NEWEST_PATCHES), name
