"""The rules of RabbitMQ's releases: behaviours of the broker, their versions and their places in its source.

The order is: hashing, changes of a ring, a full restart, and ``x-modulus-hash``. Code tests a rule by its name::

    if release.follows(DUPLICATES_APPEND): ...

The files are in ``deps/rabbitmq_consistent_hash_exchange/src/`` of rabbitmq-server, in ``deps/rabbit/src/``
and in ``deps/rabbitmq_sharding/src/``. A number such as #3386 is a pull request of rabbitmq-server.
"""

from __future__ import annotations

from rabbit_chx.amqp.exchange_types import MODULUS_EXCHANGE
from rabbit_chx.routing.release import OLDEST, Numbers, Rule, Spans

_CHX_ERL = "rabbit_exchange_type_consistent_hash.erl"
# In rabbitmq_sharding until 4.2, in rabbit from v4.3.0 on.
_MODULUS_ERL = "rabbit_exchange_type_modulus_hash.erl"

_ALWAYS: Spans = ((OLDEST, None),)


def _since(first: str) -> Spans:
    return ((_numbers(first), None),)


def _between(first: str, end: str) -> Spans:
    """Return the span from the first version to the last before `end`."""
    return ((_numbers(first), _numbers(end)),)


def _before(end: str) -> Spans:
    return ((OLDEST, _numbers(end)),)


def _numbers(version: str) -> Numbers:
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


# fmt: off

# -- What is hashed: the routing key or a property -------------------------------------------------------------------

HASHED_ROUTING_KEY = Rule(
    "routing key", "the routing key's bytes through phash2; CC and BCC do not count",
    _ALWAYS, f"{_CHX_ERL} value_to_hash/2, jump_consistent_hash/2",
)
HASHED_PROPERTY = Rule(
    "hash-property", "the bytes of message_id or correlation_id, or the decimal digits of timestamp's seconds, or "
    "the atom undefined, through phash2",
    _ALWAYS, f"{_CHX_ERL} value_to_hash/2",
)

# -- What is hashed: a header ----------------------------------------------------------------------------------------

HEADER_IS_TUPLE = Rule(
    "header value", "with its wire type, as {signedint,5} or {longstr,<<...>>}, through phash2",
    _before("3.13.0"), f"{_CHX_ERL} value_to_hash/2",
)
HEADER_IS_BARE = Rule(
    "header value", "bare, whatever its wire type, through phash2",
    _since("3.13.0"), f"{_CHX_ERL} value_to_hash/2; mc_amqpl.erl routing_headers/2, v3.13.0",
)
INTEGER_IS_SEED = Rule(
    "header with an integer", "the integer itself is the seed, without phash2",
    _since("3.13.0"), f"{_CHX_ERL} jump_consistent_hash/2, v3.13.0",
)
TIMESTAMP_IS_SEED = Rule(
    "header with a timestamp", "its milliseconds are the seed, without phash2",
    _since("3.13.0"), "mc_amqpl.erl routing_headers/2, v3.13.0",
)
LIST_IS_ITS_HEAD = Rule(
    "header with an array or table", "its first element alone, with the wire type, through phash2",
    _since("3.13.0"), f"{_CHX_ERL} jump_consistent_hash/2, v3.13.0",
)
EMPTY_LIST_CRASHES = Rule(
    "header with an empty array or table", "the broker closes the connection (541), unless there is one bucket only",
    _between("3.13.0", "4.3.5"), f"{_CHX_ERL} jump_consistent_hash/2 (hd([])), until #17081",
)
EMPTY_LIST_IS_HASHED = Rule(
    "header with an empty array or table", "the empty list through phash2",
    _since("4.3.5"), f"{_CHX_ERL} jump_consistent_hash/2, #17081",
)
VOID_IS_UNDEFINED = Rule(
    "header with void", "the atom undefined, as if the header were missing",
    _since("3.13.0"), "mc_amqpl.erl routing_headers/2, v3.13.0",
)
MISSING_HEADER_IS_UNDEFINED = Rule(
    "header missing", "the atom undefined through phash2: one bucket for all such messages",
    _before("3.13.0") + _since("3.13.7"), f"{_CHX_ERL} value_to_hash/2",
)
MISSING_HEADER_CRASHES = Rule(
    "header missing", "the broker closes the connection (541)",
    _between("3.13.0", "3.13.7"), f"{_CHX_ERL} value_to_hash/2 ({{badkey,_}}), until #11808",
)
FIRST_HEADER_COUNTS = Rule(
    "header given twice", "the first counts",
    _before("3.13.0"), "rabbit_misc.erl table_lookup/2",
)
LAST_HEADER_COUNTS = Rule(
    "header given twice", "the last counts",
    _since("3.13.0"), "mc_amqpl.erl routing_headers/2, v3.13.0",
)

# -- What is hashed: AMQP 1.0 ----------------------------------------------------------------------------------------

AMQP10_IS_CONVERTED = Rule(
    "AMQP 1.0", "a plugin converts it to 0-9-1 first, which is not modelled",
    _before("4.0.0"), "rabbitmq_amqp1_0",
)
AMQP10_VALUE_IS_BARE = Rule(
    "AMQP 1.0 property or id", "integers, code points and milliseconds are the seed; all else through phash2, a uuid "
    "as its 16 bytes",
    _since("4.0.0"), "mc_amqp.erl routing_headers/2, property/2, v4.0.0",
)
AMQP10_LEAVES_OUT = Rule(
    "AMQP 1.0 list, map, decimal, NaN", "the atom undefined, as if it were missing",
    _since("4.0.0"), "mc_amqp.erl routing_headers/2, v4.0.0",
)
AMQP10_CC_COUNTS = Rule(
    "AMQP 1.0 x-cc", "its routing keys have the same effect as CC",
    _since("4.1.0"), "rabbit_amqp_session.erl lookup_routing_key/5, #12559",
)

# -- How a ring changes: bind and unbind -----------------------------------------------------------------------------

DUPLICATES_APPEND = Rule(
    "second binding of a destination", "appends buckets, instead of being ignored",
    _before("3.10.6"), f"{_CHX_ERL} add_binding/3, until 878f369b7a (#3386)",
)
WEIGHT_IS_REFUSED = Rule(
    "weight above 10,000", "is refused",
    _since("4.2.6"), f"{_CHX_ERL} validate_binding/2, 90acc4ebe1 (#16118)",
)

# -- How a ring changes: a full restart ------------------------------------------------------------------------------

RESTART_SHUFFLES = Rule(
    "full restart", "bindings are added again by several workers, in no order that can be computed",
    _before("4.3.0"), "rabbit_binding.erl recover/2", "mnesia",
)
RESTART_KEEPS = Rule(
    "full restart", "the ring stays; a bound destination without buckets is added at the end",
    _since("3.13.0"), f"{_CHX_ERL} recover/0, from v4.3.0 recover/2; rabbit_db_ch_exchange.erl", "khepri",
)

# -- x-modulus-hash: in which order bindings are counted -------------------------------------------------------------

MODULUS_BY_BINDING_KEY = Rule(
    MODULUS_EXCHANGE, "bindings are sorted by binding key, kind and name",
    _before("4.3.0"), f"{_MODULUS_ERL} route/3; rabbit_router.erl match_routing_key/2", "mnesia",
)
MODULUS_UNORDERED = Rule(
    MODULUS_EXCHANGE, "bindings are in an order that cannot be computed, and in another one after a restart",
    _between("3.13.0", "4.3.0"), f"{_MODULUS_ERL} route/3; rabbit_khepri.erl, projections of routes", "khepri",
)
MODULUS_BY_NAME = Rule(
    MODULUS_EXCHANGE, "destinations are sorted by kind and name; binding keys do not count",
    _since("4.3.0"), f"{_MODULUS_ERL} route/3, #15849",
)

# fmt: on

#: All rules, in the order of the public table. A test checks that the list is complete.
RULES: tuple[Rule, ...] = (
    HASHED_ROUTING_KEY, HASHED_PROPERTY, HEADER_IS_TUPLE, HEADER_IS_BARE, INTEGER_IS_SEED,
    TIMESTAMP_IS_SEED, LIST_IS_ITS_HEAD, EMPTY_LIST_CRASHES, EMPTY_LIST_IS_HASHED, VOID_IS_UNDEFINED,
    MISSING_HEADER_IS_UNDEFINED, MISSING_HEADER_CRASHES, FIRST_HEADER_COUNTS, LAST_HEADER_COUNTS,
    AMQP10_IS_CONVERTED, AMQP10_VALUE_IS_BARE, AMQP10_LEAVES_OUT, AMQP10_CC_COUNTS, DUPLICATES_APPEND,
    WEIGHT_IS_REFUSED, RESTART_SHUFFLES, RESTART_KEEPS, MODULUS_BY_BINDING_KEY, MODULUS_UNORDERED, MODULUS_BY_NAME,
)  # fmt: skip
