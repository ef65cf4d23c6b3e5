"""The rules of two releases beside each other."""

from __future__ import annotations

from rabbit_chx.routing import HashedOn, Release
from rabbit_chx.topology.upgrade_exchange import hashed_alike, same_rules

HEADER = HashedOn("header", b"tenant")


def test_only_headers_are_hashed_differently() -> None:
    old, new = Release("3.12.14"), Release("4.3.6")
    assert not hashed_alike(HEADER, old, new)
    assert hashed_alike(HashedOn("routing-key"), old, new)
    assert hashed_alike(HashedOn("property", b"message_id"), old, new)
    assert hashed_alike(HEADER, Release("3.8.9"), old)
    assert hashed_alike(HEADER, Release("3.13.7"), new)


def test_patches_of_a_series_may_follow_other_rules() -> None:
    assert same_rules(Release("3.10.8"), Release("3.10.25"))
    assert not same_rules(Release("3.10.5"), Release("3.10.6"))
