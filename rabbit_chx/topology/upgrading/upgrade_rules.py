"""The rules of two releases beside each other: which of them decide where a message goes, and which differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import rules

if TYPE_CHECKING:
    from rabbit_chx.routing import HashedOn, Release
    from rabbit_chx.routing.release import Rule

__all__ = ["differing_rules", "hashed_alike", "same_rules"]

#: What decides the seed of a header's value.
_OF_HEADERS = (
    rules.HEADER_IS_TUPLE, rules.HEADER_IS_BARE, rules.INTEGER_IS_SEED, rules.TIMESTAMP_IS_SEED,
    rules.LIST_IS_ITS_HEAD, rules.VOID_IS_UNDEFINED, rules.FIRST_HEADER_COUNTS, rules.LAST_HEADER_COUNTS,
)  # fmt: skip
#: What decides whether a message of a header exchange is routed at all.
_OF_REFUSALS = (
    rules.EMPTY_LIST_CRASHES, rules.EMPTY_LIST_IS_HASHED, rules.MISSING_HEADER_IS_UNDEFINED,
    rules.MISSING_HEADER_CRASHES,
)  # fmt: skip
_OF_RINGS = (
    rules.DUPLICATES_APPEND, rules.UNBIND_SHIFTS_BY_WEIGHT, rules.WEIGHT_IS_CAPPED, rules.RESTART_SHUFFLES,
    rules.RESTART_EMPTIES, rules.RESTART_SORTS, rules.RESTART_KEEPS,
)  # fmt: skip
_OF_MODULUS = (rules.MODULUS_BY_BINDING_KEY, rules.MODULUS_UNORDERED, rules.MODULUS_BY_NAME)


def hashed_alike(hashed_on: HashedOn, before: Release, after: Release) -> bool:
    """Return whether two releases give every value that both route the same seed.

    Args:
        hashed_on: what the exchange hashes.
        before: a release.
        after: another one.
    """
    return hashed_on.kind != "header" or not _differing(_OF_HEADERS, before, after)


def differing_rules(
    before: Release, after: Release, hashed_on: HashedOn | None = None
) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the rules that only one of two releases follows: those of the one, and those of the other.

    Args:
        before: a release.
        after: another one.
        hashed_on: what an ``x-consistent-hash`` exchange hashes; None for an ``x-modulus-hash`` exchange.
    """
    asked: tuple[Rule, ...] = _OF_MODULUS
    if hashed_on is not None:
        asked = (*_OF_HEADERS, *_OF_REFUSALS, *_OF_RINGS) if hashed_on.kind == "header" else _OF_RINGS
    differing = _differing(asked, before, after)
    return (
        tuple(rule for rule in differing if before.follows(rule)),
        tuple(rule for rule in differing if after.follows(rule)),
    )


def same_rules(one: Release, other: Release) -> bool:
    """Return whether two releases follow the same rules.

    Args:
        one: a release.
        other: another one.
    """
    return not _differing(rules.RULES, one, other)


def _differing(asked: tuple[Rule, ...], before: Release, after: Release) -> list[Rule]:
    return [rule for rule in asked if before.follows(rule) != after.follows(rule)]
