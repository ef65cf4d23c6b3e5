"""A release: a broker version with its metadata store, and the rules that it follows."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import cache, total_ordering
from typing import Any, Literal, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import shown

Store: TypeAlias = Literal["mnesia", "khepri"]
Numbers: TypeAlias = tuple[int, int, int]
#: Spans of versions: the first version and the first one after the span; None for an open end.
Spans: TypeAlias = tuple[tuple[Numbers, Numbers | None], ...]

OLDEST: Numbers = (3, 10, 0)
_FIRST_WITH_KHEPRI: Numbers = (3, 13, 0)
_FIRST_WITH_KHEPRI_BY_DEFAULT: Numbers = (4, 2, 0)
_FIRST_WITHOUT_MNESIA: Numbers = (4, 3, 0)
_FIRST_UNKNOWN: Numbers = (4, 5, 0)

#: From this release on a quorum queue delivers by priority, delays returned messages, and returns single messages after a consumer timeout.
#: Before, the timeout closes the channel.
QUORUM_V8_SINCE: Numbers = (4, 3, 0)
#: From this release on the buckets of an exclusive queue outlive it in a restart (tested on 4.3.6).
GHOSTS_SINCE = (4, 3, 0)

# The newest patch of each series, as tagged in rabbitmq-server.
NEWEST_PATCHES = (
    "3.10.25", "3.11.28", "3.12.14", "3.13.7", "4.0.9", "4.1.8", "4.2.9", "4.3.7",
    "4.4.1",
)  # fmt: skip

_MAX_VERSION_CHARACTERS = 255

_SERIES = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_VERSION = re.compile(
    r"(\d+)\.(\d+)\.(\d+)(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A behaviour of some releases; all rules are in :mod:`rabbit_chx.routing.rules`.

    Attributes:
        about: the subject, in a few words.
        says: the behaviour of the broker in these releases, in one line.
        source: the place in the server's source: file, function, the change.
        store: the metadata store that the rule depends on; None for either.
    """

    about: str
    says: str
    versions: Spans
    source: str
    store: Store | None = None


@total_ordering
@dataclass(frozen=True, slots=True, init=False)
class Release:
    """A broker version with its metadata store.

    Releases are ordered by version, a pre-release before its version. Rules depend on the three numbers only, so a pre-release follows the
    rules of its version. A version newer than those known, 4.5.0 on, follows the newest rules, with one UserWarning for each such version.
    A newer patch, such as 4.3.8, follows the newest rules of its series without a warning.

    Attributes:
        version: as the broker reports it, such as ``4.3.6``, ``4.3.0-rc.1`` or ``3.13.7+suffix``.
        store: ``mnesia`` or ``khepri``.
        store_known: False if the version supports both and `store` is only the default of a new broker.
    """

    version: str
    store: Store
    store_known: bool = field(compare=False, repr=False)
    _parsed: tuple[Numbers, tuple[Any, ...]] = field(compare=False, repr=False, metadata=shown(json=None))

    def __init__(self, version: str, store: Store | None = None) -> None:
        """Parse a version.

        Args:
            version: as the broker reports it, or a series such as ``4.3`` for its newest known patch.
            store: the metadata store; None for the default of a new broker of the version.

        Raises:
            InputError: the version or the store is invalid.
        """
        if isinstance(version, str) and _SERIES.fullmatch(version):
            version = _newest_patch(version)
        parsed = _parse(version)
        numbers, _ = parsed
        if numbers < OLDEST:
            raise InputError(
                f"RabbitMQ {version} is not supported: the rules of 3.10.0 and newer are known here; upgrade the broker, or pass a newer release"
            )

        if numbers >= _FIRST_UNKNOWN:
            _warn_once(version)
        possible = _possible_stores(numbers)
        if store is not None and store not in possible:
            raise InputError(
                f"RabbitMQ {version} cannot have the store {store!r}: it has {' or '.join(possible)}"
            )

        by_default: Store = "khepri" if numbers >= _FIRST_WITH_KHEPRI_BY_DEFAULT else "mnesia"
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "store", store or by_default)
        object.__setattr__(self, "store_known", store is not None or len(possible) == 1)
        object.__setattr__(self, "_parsed", parsed)

    @property
    def numbers(self) -> Numbers:
        """The version's three numbers."""
        return self._parsed[0]

    def follows(self, rule: Rule) -> bool:
        """Return whether the broker of this release follows a rule.

        Args:
            rule: one of :mod:`rabbit_chx.routing.rules`.
        """
        if rule.store not in (None, self.store):
            return False
        return any(within(self.numbers, since, until) for since, until in rule.versions)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        return self._order() < other._order()

    def __str__(self) -> str:
        return f"{self.version} ({self.store if self.store_known else f'{self.store}?'})"

    def _order(self) -> tuple[Any, ...]:
        return (*self._parsed, self.store, self.version)


def check_release(release: object) -> Release:
    """Return the release, if it is a Release."""
    if not isinstance(release, Release):
        raise InputError(f"the release is {release!r:.40}: pass a Release, such as Release('4.3.6')")
    return release


@cache
def _warn_once(version: str) -> None:
    warnings.warn(
        f"RabbitMQ {version} is newer than the rules known here: it is taken to follow those of {NEWEST_COMPARED.version}; "
        "update rabbit-chx, and compare with the broker until then",
        stacklevel=3,
    )


def _newest_patch(series: str) -> str:
    patches = {version.rpartition(".")[0]: version for version in NEWEST_PATCHES}
    if series not in patches:
        raise InputError(
            f"{series!r:.60} is not a known RabbitMQ series: pass one of {', '.join(patches)}, or a version with all three "
            "numbers"
        )
    return patches[series]


def _parse(version: str) -> tuple[Numbers, tuple[Any, ...]]:
    """Return the three numbers, and a key that orders pre-releases by semantic versioning."""
    readable = isinstance(version, str) and len(version) <= _MAX_VERSION_CHARACTERS
    match = _VERSION.fullmatch(version) if readable else None
    if match is None:
        raise InputError(
            f"{version!r:.60} is not a RabbitMQ version: write a series, as 4.3, or all three numbers, as 4.3.6"
        )
    major, minor, patch = (int(number) for number in match.groups()[:3])
    if match["pre"] is None:
        return (major, minor, patch), (1,)
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in match["pre"].split("."))
    return (major, minor, patch), (0, parts)


def _possible_stores(numbers: Numbers) -> tuple[Store, ...]:
    """Mirror rabbitmq-server ``deps/rabbit/src/rabbit_core_ff.erl``, feature flag ``khepri_db``, by tag."""
    if numbers < _FIRST_WITH_KHEPRI:
        return ("mnesia",)
    return ("mnesia", "khepri") if numbers < _FIRST_WITHOUT_MNESIA else ("khepri",)


def within(numbers: Numbers, since: Numbers, until: Numbers | None) -> bool:
    """Return whether a version lies in a span."""
    return since <= numbers and (until is None or numbers < until)


#: The newest release that was compared with a broker: its rules are the default. From the sources, 4.4 has the same rules.
NEWEST_COMPARED = Release("4.3.6")
