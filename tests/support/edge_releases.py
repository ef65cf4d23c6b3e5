"""The releases at the edges of the rules: laws draw from these, so that a rule that is added is in every law."""

from __future__ import annotations

from collections.abc import Iterator

from rabbit_chx.routing import Release
from rabbit_chx.routing.release import NEWEST_PATCHES, Numbers
from rabbit_chx.routing.rules import RULES

_OLDEST: Numbers = (3, 10, 0)


def edge_releases() -> list[Release]:
    """Return a release for each set of rules that releases from 3.10 on follow, the newest first: before and after each edge of a rule."""
    found: dict[tuple[str, ...], Release] = {}
    for release in sorted(_candidates(), reverse=True):
        rules = tuple(f"{rule.about}: {rule.says}" for rule in RULES if release.follows(rule))
        found.setdefault((*rules, release.store), release)
    return list(found.values())


def _candidates() -> Iterator[Release]:
    edges = {
        edge
        for rule in RULES
        for span in rule.versions
        for edge in span
        if edge is not None and edge > _OLDEST
    }
    versions = {*NEWEST_PATCHES, *(_text(edge) for edge in edges), *(_before(edge) for edge in edges)}
    for version in versions:
        release = Release(version)
        if release.numbers >= _OLDEST:
            yield release
            if not release.store_known:
                yield from (Release(version, store) for store in ("mnesia", "khepri"))


def _before(edge: Numbers) -> str:
    """Return the version before an edge: the patch before it, or the newest one of the series before it."""
    major, minor, patch = edge
    if patch:
        return _text((major, minor, patch - 1))
    newest = (Release(version) for version in NEWEST_PATCHES)
    return max(
        (release for release in newest if release.numbers < edge), default=Release(_text(edge))
    ).version


def _text(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))
