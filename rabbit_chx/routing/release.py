"""A release: a broker version together with its metadata store, and which rules it follows."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any, Literal, NamedTuple, TypeAlias

from rabbit_chx.errors import InputError

__all__ = ["NEWEST", "RULES", "Release", "Rule", "RuleRow", "check_release", "rule_rows"]

Store: TypeAlias = Literal["mnesia", "khepri"]
Numbers: TypeAlias = tuple[int, int, int]

OLDEST: Numbers = (3, 7, 8)
FIRST_WITH_KHEPRI: Numbers = (3, 13, 0)
FIRST_WITH_KHEPRI_BY_DEFAULT: Numbers = (4, 2, 0)
FIRST_WITHOUT_MNESIA: Numbers = (4, 3, 0)
FIRST_UNKNOWN: Numbers = (4, 4, 0)

# The newest patch of each series, as tagged in rabbitmq-server.
NEWEST_PATCHES = (
    "3.7.28", "3.8.35", "3.9.29", "3.10.25", "3.11.28", "3.12.14", "3.13.7", "4.0.9", "4.1.8", "4.2.9", "4.3.6",
)  # fmt: skip

MAX_VERSION_CHARACTERS = 255

_VERSION = re.compile(
    r"(\d+)\.(\d+)\.(\d+)(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)


@total_ordering
@dataclass(frozen=True, slots=True, init=False)
class Release:
    """A broker version together with its metadata store.

    Releases are ordered by version, a pre-release before its version; rules go by the three numbers alone, so
    that a pre-release follows the rules of its version. A version newer than those known, 4.4.0 on, follows the
    newest rules, which a UserWarning says once for each such version. A patch newer than those known, as 4.3.7,
    follows the newest rules of its series without a warning.

    Attributes:
        version: as the broker says it, as ``4.3.6``, ``4.3.0-rc.1`` or ``3.13.7+suffix``.
        store: ``mnesia`` or ``khepri``.
        store_known: False where the version may have either and `store` is only what a fresh broker has.
    """

    version: str
    store: Store
    store_known: bool = field(compare=False, repr=False)
    _parsed: tuple[Numbers, tuple[Any, ...]] = field(compare=False, repr=False)

    def __init__(self, version: str, store: Store | None = None) -> None:
        """Without a store it is the one that a fresh broker of the version has.

        Raises:
            InputError: the version cannot be read or is older than 3.7.8, or cannot have that store.
        """
        parsed = _parse(version)
        numbers, _ = parsed
        if numbers < OLDEST:
            raise InputError(
                f"RabbitMQ {version} has another algorithm: before 3.7.8 the ring was made of random points"
            )
        if numbers >= FIRST_UNKNOWN:
            _say_once_that_it_is_unknown(version)
        possible = _possible_stores(numbers)
        if store is not None and store not in possible:
            raise InputError(
                f"RabbitMQ {version} cannot have the store {store!r}: it has {' or '.join(possible)}"
            )
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "store", store or _default_store(numbers))
        object.__setattr__(self, "store_known", store is not None or len(possible) == 1)
        object.__setattr__(self, "_parsed", parsed)

    @classmethod
    def newest_of(cls, series: str, store: Store | None = None) -> Release:
        """The newest known patch of a series: ``Release.newest_of("4.0")`` is ``Release("4.0.9")``.

        Raises:
            InputError: no patch of that series is known, or it cannot have that store.
        """
        for version in NEWEST_PATCHES:
            if version.rpartition(".")[0] == series:
                return cls(version, store)
        known = ", ".join(version.rpartition(".")[0] for version in NEWEST_PATCHES)
        raise InputError(
            f"{series!r:.60} is no RabbitMQ series known here: give one of {known}, or a version with all three numbers"
        )

    @property
    def numbers(self) -> Numbers:
        """The version's three numbers."""
        return self._parsed[0]

    def follows(self, rule: Rule) -> bool:
        """Whether the broker of this release follows a rule."""
        if rule.store not in (None, self.store):
            return False
        return any(_within(self.numbers, since, until) for since, until in rule.versions)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        return self._order() < other._order()

    def __str__(self) -> str:
        return f"{self.version} ({self.store if self.store_known else f'{self.store}?'})"

    def _order(self) -> tuple[Any, ...]:
        return (*self._parsed, self.store, self.version)


def check_release(release: Release | None) -> Release:
    """The release, the newest for None.

    Raises:
        InputError: it is no release.
    """
    if release is None:
        return NEWEST
    if not isinstance(release, Release):
        raise InputError(f"the release is {release!r:.40}: give a Release, such as Release('4.3.6')")
    return release


_said: set[str] = set()


def _say_once_that_it_is_unknown(version: str) -> None:
    if version not in _said:
        _said.add(version)
        warnings.warn(
            f"RabbitMQ {version} is newer than the rules known here: it is taken to follow those of {NEWEST.version}; "
            "update rabbit-chx, and compare with the broker until then",
            stacklevel=3,
        )


def _parse(version: str) -> tuple[Numbers, tuple[Any, ...]]:
    """The three numbers, and a key that orders pre-releases as semantic versions are ordered."""
    readable = isinstance(version, str) and len(version) <= MAX_VERSION_CHARACTERS
    match = _VERSION.fullmatch(version) if readable else None
    if match is None:
        raise InputError(f"{version!r:.60} is no RabbitMQ version: write all three numbers, as in 4.3.6")
    major, minor, patch = (int(number) for number in match.groups()[:3])
    if match["pre"] is None:
        return (major, minor, patch), (1,)
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in match["pre"].split("."))
    return (major, minor, patch), (0, parts)


def _possible_stores(numbers: Numbers) -> tuple[Store, ...]:
    """Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_core_ff.erl``, feature flag ``khepri_db``, by tag."""
    if numbers < FIRST_WITH_KHEPRI:
        return ("mnesia",)
    return ("mnesia", "khepri") if numbers < FIRST_WITHOUT_MNESIA else ("khepri",)


def _default_store(numbers: Numbers) -> Store:
    return "khepri" if numbers >= FIRST_WITH_KHEPRI_BY_DEFAULT else "mnesia"


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that only some releases do.

    Attributes:
        about: what it is about, in a few words.
        says: what those releases do, in one line.
        versions: spans of versions: the first that does it, and the first that does not (None: still does).
        source: where the server's source says so: file, function, the change.
        store: the metadata store that it takes; None for either.
    """

    about: str
    says: str
    versions: tuple[tuple[Numbers, Numbers | None], ...]
    source: str
    store: Store | None = None


class RuleRow(NamedTuple):
    """A rule as one line of a table: a rule that comes, goes and comes again has several.

    Attributes:
        rule: what it is about.
        since: the first version that follows it.
        until: the first version that does not; empty where the newest still does.
        store: ``mnesia`` or ``khepri`` where it takes one; empty for either.
        what: what those releases do.
        source: the server's file and function, and the change.
    """

    rule: str
    since: str
    until: str
    store: str
    what: str
    source: str


def rule_rows(release: Release | None = None) -> list[RuleRow]:
    """The rules as a table, by subject and then by version.

    Args:
        release: for the rules of one release alone; None for all.

    Raises:
        InputError: it is no release.
    """
    if release is not None:
        check_release(release)
    return [
        RuleRow(rule.about, _dotted(since), _dotted(until), rule.store or "", rule.says, rule.source)
        for rule in RULES
        if release is None or release.follows(rule)
        for since, until in rule.versions
        if release is None or _within(release.numbers, since, until)
    ]


def _within(numbers: Numbers, since: Numbers, until: Numbers | None) -> bool:
    return since <= numbers and (until is None or numbers < until)


def _dotted(numbers: Numbers | None) -> str:
    return ".".join(map(str, numbers)) if numbers else ""


# The files that the rules name: deps/rabbitmq_consistent_hash_exchange/src/ of rabbitmq-server (before v3.8.10 src/
# of rabbitmq-consistent-hash-exchange), deps/rabbit/src/ and deps/rabbitmq_sharding/src/.
CHX = "rabbit_exchange_type_consistent_hash.erl"
MODULUS = "rabbit_exchange_type_modulus_hash.erl"  # of rabbitmq_sharding until 4.2, of rabbit from v4.3.0

FOREVER = (((3, 7, 8), None),)
BEFORE_BARE_VALUES = (((3, 7, 8), (3, 13, 0)),)
SINCE_BARE_VALUES = (((3, 13, 0), None),)
SINCE_AMQP10 = (((4, 0, 0), None),)

# fmt: off
HASHED_ROUTING_KEY = Rule(
    "routing key", "the routing key's bytes through phash2; CC and BCC do not count",
    FOREVER, f"{CHX} value_to_hash/2, jump_consistent_hash/2",
)
HASHED_PROPERTY = Rule(
    "hash-property", "the bytes of message_id or correlation_id, or the decimal digits of timestamp's seconds, or "
    "the atom undefined, through phash2",
    FOREVER, f"{CHX} value_to_hash/2",
)
HEADER_IS_TUPLE = Rule(
    "header value", "with its wire type, as {signedint,5} or {longstr,<<...>>}, through phash2",
    BEFORE_BARE_VALUES, f"{CHX} value_to_hash/2",
)
HEADER_IS_BARE = Rule(
    "header value", "bare, whatever its wire type, through phash2",
    SINCE_BARE_VALUES, f"{CHX} value_to_hash/2; mc_amqpl.erl routing_headers/2, v3.13.0",
)
INTEGER_IS_SEED = Rule(
    "header with an integer", "the integer itself is the seed, without phash2",
    SINCE_BARE_VALUES, f"{CHX} jump_consistent_hash/2, v3.13.0",
)
TIMESTAMP_IS_SEED = Rule(
    "header with a timestamp", "its milliseconds are the seed, without phash2",
    SINCE_BARE_VALUES, "mc_amqpl.erl routing_headers/2, v3.13.0",
)
LIST_IS_ITS_HEAD = Rule(
    "header with an array or table", "its first element alone, with the wire type, through phash2",
    SINCE_BARE_VALUES, f"{CHX} jump_consistent_hash/2, v3.13.0",
)
EMPTY_LIST_CRASHES = Rule(
    "header with an empty array or table", "the broker closes the connection (541), unless there is one bucket only",
    (((3, 13, 0), (4, 3, 5)),), f"{CHX} jump_consistent_hash/2 (hd([])), until #17081",
)
EMPTY_LIST_IS_HASHED = Rule(
    "header with an empty array or table", "the empty list through phash2",
    (((4, 3, 5), None),), f"{CHX} jump_consistent_hash/2, #17081",
)
VOID_IS_UNDEFINED = Rule(
    "header with void", "the atom undefined, as if the header were missing",
    SINCE_BARE_VALUES, "mc_amqpl.erl routing_headers/2, v3.13.0",
)
MISSING_HEADER_IS_UNDEFINED = Rule(
    "header missing", "the atom undefined through phash2: one bucket for all such messages",
    (((3, 7, 8), (3, 13, 0)), ((3, 13, 7), None)), f"{CHX} value_to_hash/2",
)
MISSING_HEADER_CRASHES = Rule(
    "header missing", "the broker closes the connection (541)",
    (((3, 13, 0), (3, 13, 7)),), f"{CHX} value_to_hash/2 ({{badkey,_}}), until #11808",
)
FIRST_HEADER_COUNTS = Rule(
    "header given twice", "the first counts",
    BEFORE_BARE_VALUES, "rabbit_misc.erl table_lookup/2",
)
LAST_HEADER_COUNTS = Rule(
    "header given twice", "the last counts",
    SINCE_BARE_VALUES, "mc_amqpl.erl routing_headers/2, v3.13.0",
)
AMQP10_IS_CONVERTED = Rule(
    "AMQP 1.0", "a plugin makes 0-9-1 messages of it first, which is not mirrored",
    (((3, 7, 8), (4, 0, 0)),), "rabbitmq_amqp1_0",
)
AMQP10_VALUE_IS_BARE = Rule(
    "AMQP 1.0 property or id", "integers, code points and milliseconds are the seed; all else through phash2, a uuid "
    "as its 16 bytes",
    SINCE_AMQP10, "mc_amqp.erl routing_headers/2, property/2, v4.0.0",
)
AMQP10_LEAVES_OUT = Rule(
    "AMQP 1.0 list, map, decimal, NaN", "the atom undefined, as if it were missing",
    SINCE_AMQP10, "mc_amqp.erl routing_headers/2, v4.0.0",
)
AMQP10_CC_COUNTS = Rule(
    "AMQP 1.0 x-cc", "its routing keys count as those of CC do",
    (((4, 1, 0), None),), "rabbit_amqp_session.erl lookup_routing_key/5, #12559",
)
DUPLICATES_APPEND = Rule(
    "second binding of a destination", "appends buckets, instead of being ignored",
    (((3, 7, 8), (3, 9, 21)), ((3, 10, 0), (3, 10, 6))), f"{CHX} add_binding/3, until 878f369b7a (#3386)",
)
UNBIND_SHIFTS_BY_WEIGHT = Rule(
    "unbind", "moves later buckets down by the binding's weight, instead of by the buckets that went",
    (((3, 7, 8), (3, 8, 24)), ((3, 9, 0), (3, 9, 9))), f"{CHX} remove_binding/1, until #3594",
)
UNSORTED_ENDS = Rule(
    "unbind", "takes a destination's first and last bucket from keys in no order, if it has more than 32",
    (((3, 7, 8), (3, 7, 10)),), f"{CHX} remove_binding/1, until rabbitmq-consistent-hash-exchange#41",
)
WEIGHT_IS_CAPPED = Rule(
    "weight", "is at most 10,000",
    (((4, 2, 6), None),), f"{CHX} validate_binding/2, 90acc4ebe1 (#16118)",
)
RESTART_SHUFFLES = Rule(
    "full restart", "bindings are added again by several workers, in no order that can be computed",
    (((3, 7, 8), (3, 8, 4)), ((3, 8, 10), (4, 3, 0))), "rabbit_binding.erl recover/2", "mnesia",
)
RESTART_EMPTIES = Rule(
    "full restart", "the ring is empty until destinations are bound anew",
    (((3, 8, 4), (3, 8, 5)),), f"{CHX} init/0 (rabbitmq-consistent-hash-exchange#45)", "mnesia",
)
RESTART_SORTS = Rule(
    "full restart", "bindings are added again sorted by binding key, kind and name",
    (((3, 8, 5), (3, 8, 10)),), f"{CHX} recover/0", "mnesia",
)
RESTART_KEEPS = Rule(
    "full restart", "the ring stays; a bound destination without buckets is added at the end",
    (((3, 13, 0), None),), f"{CHX} recover/0, from v4.3.0 recover/2; rabbit_db_ch_exchange.erl", "khepri",
)
MODULUS_BY_BINDING_KEY = Rule(
    "x-modulus-hash", "bindings stand sorted by binding key, kind and name",
    (((3, 7, 8), (4, 3, 0)),), f"{MODULUS} route/3; rabbit_router.erl match_routing_key/2", "mnesia",
)
MODULUS_UNORDERED = Rule(
    "x-modulus-hash", "bindings stand in no order that can be computed, another after a restart",
    (((3, 13, 0), (4, 3, 0)),), f"{MODULUS} route/3; rabbit_khepri.erl, projections of routes", "khepri",
)
MODULUS_BY_NAME = Rule(
    "x-modulus-hash", "destinations stand sorted by kind and name; binding keys do not count",
    (((4, 3, 0), None),), f"{MODULUS} route/3, #15849",
)

# fmt: on

# Every Rule above, in that order.
RULES = tuple(value for value in globals().values() if isinstance(value, Rule))

NEWEST = Release(NEWEST_PATCHES[-1])
