"""The consumer tags by which the members of a group are known."""

from __future__ import annotations

import re
import secrets

__all__ = ["member_of", "tag_of"]

_PREFIX = "rabbit-chx.group."
_TAG = re.compile(rf"{re.escape(_PREFIX)}(.+)\.[^.]+", re.DOTALL)


def tag_of(member: str) -> str:
    """Return a new consumer tag of a member.

    Args:
        member: the name of the member.
    """
    return f"{_PREFIX}{member}.{secrets.token_hex(4)}"


def member_of(consumer_tag: str) -> str | None:
    """Return the member of a group that a consumer belongs to; None for a consumer of something else.

    Args:
        consumer_tag: the tag of the consumer.
    """
    found = _TAG.fullmatch(consumer_tag)
    return found and found[1]
