"""The members of a group are known by their consumer tags."""

from __future__ import annotations

import pytest

from rabbit_chx.topology.hand_over_marker import make_consumer_tag, parse_member


@pytest.mark.parametrize(
    ("tag", "member"),
    [
        ("rabbit-chx.group.pod-7.a1b2", "pod-7"),
        ("rabbit-chx.group.host.example.com-12.a1b2", "host.example.com-12"),
        ("rabbit-chx.group.", None),
        ("rabbit-chx.group.pod", None),
        ("amq.ctag-5f", None),
    ],
)
def test_a_member_is_known_by_its_tag(tag: str, member: str | None) -> None:
    assert parse_member(tag) == member


@pytest.mark.parametrize("member", ["pod-7", "host.example.com-12", "two\nlines"])
def test_a_tag_is_new_and_names_its_member(member: str) -> None:
    first, second = make_consumer_tag(member), make_consumer_tag(member)
    assert first != second
    assert parse_member(first) == parse_member(second) == member
