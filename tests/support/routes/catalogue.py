"""The scenarios that every release goes through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pika.compat import long

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.fields import Client, FieldType
from rabbit_chx.routing import Destination, ExchangeRef, Release
from routes.amqp10_catalogue import OVER_AMQP_10
from routes.scenario import MODULUS, Keys, Message, Scenario, Step, Temporary


def bound(*bindings: tuple[Destination, int | str]) -> tuple[Step, ...]:
    return tuple(Step("bind", destination, str(key)) for destination, key in bindings)


def unbound(destination: Destination, key: int | str) -> Step:
    return Step("unbind", destination, str(key))


def deleted(destination: Destination) -> Step:
    return Step("delete", destination)


def left(connection: str) -> Step:
    return Step("leave", None, connection)


FEW = bound(("q1", 3), ("q2", 10), ("q3", 7), ("q4", 1))
SEVEN = bound(*((f"q{number}", 1 + number % 3) for number in range(7)))
TEN = bound(*((f"q{number}", 1 + number % 4) for number in range(10)))
SOME = Keys("decimal", 2_000)

#: The example in the plugin's README.
EXAMPLE = Scenario("example", bound(("q1", 1), ("q2", 1), ("q3", 2), ("q4", 2)), Keys("decimal", 100_000))

MANY_KEYS = (
    EXAMPLE,
    Scenario("ten-queues", TEN, Keys("prefixed", 100_000, "user-")),
    Scenario("one-unbound-of-ten", (*TEN, unbound("q3", 4)), Keys("prefixed", 20_000, "tenant/")),
    Scenario("planes-of-unicode", FEW, Keys("planes", 20_000)),
    Scenario("keys-of-255-bytes", FEW, Keys("long", 10_000)),
    Scenario("400-buckets", bound(("a", 400), ("b", 1), ("c", 99)), Keys("decimal", 10_000)),
    Scenario("sixty-queues", bound(*((f"q{n}", 1) for n in range(60))), Keys("decimal", 10_000)),
)

HOSTILE_KEYS = (
    "", " ", "0", "5", "-1", "007", "1.5", "k" * 255, "\0", "\n", "#", "*", "a.b.#", "amq.default", "undefined",
    "\x7f", "\x80", "é", "e\u0301", "ß", "日本語", "\u200b", "\ufeff", "\ufffe", "\uffff", "😀", "👩\u200d🔬", "\U0010ffff",
    "é" * 127, "日" * 85, "😀" * 63, '{"k":1}', "'; DROP", "$(id)", "%2F", "/", "\\",
)  # fmt: skip
ROUTES: tuple[dict[str, Any], ...] = (
    {},
    {"CC": ["other"]},
    {"BCC": ["more"]},
    {"CC": ["other", ""], "BCC": ["more", "k" * 255]},
    {"CC": [], "BCC": []},
)
CLIENTS: tuple[Client, ...] = ("pika", "aio-pika")


def with_routes() -> tuple[Message, ...]:
    return tuple(
        Message(key, headers or None, client=client)
        for client in CLIENTS
        for key in HOSTILE_KEYS
        for headers in ROUTES
    )


HOSTILE_NAMES = (
    "--help",
    "-p",
    "q'q",
    'q"q',
    "a\\b",
    "$(id)",
    "é☃",
    "{ring,[]}",
    " x ",
    "n" * 255,
    "10",
    "9",
    "Z",
)

TEXTS = (
    "", "a", "tenant-7", "naïve", "日本語", "0123456789ab", "0123456789abc", "undefined", "5", "😀", "t" * 1000,
)  # fmt: skip
INTEGERS = (
    0, 1, 5, -1, -5, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 40_000, 65535, 65536, 2**21 - 1,
    2**21, 2**27 - 1, 2**27, -(2**27), -(2**27) - 1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32,
    2**63 - 1, -(2**63), *range(1000, 1200), *range(-5000, 5000, 97),
)  # fmt: skip
BOTH: tuple[Any, ...] = (
    *TEXTS, *INTEGERS, True, False, None,
    Decimal("3.14"), Decimal("-3.14"), Decimal(100), Decimal("0.10"), Decimal("1.50"), Decimal(0),
    datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    ["a"], ["a", "b"], [1], [-1], [None], [True], [["a"], 1], [[]], [{}], [{"k": "v"}],
    {"k": "v"}, {"k": 1, "a": 2}, {"k": {"l": []}}, {"": None},
)  # fmt: skip
ONE_CLIENT: dict[Client, tuple[Any, ...]] = {
    "pika": (b"", b"a", b"\xff\x00", bytes(range(256)), long(5), long(-1), long(2**40), [b"a"]),
    "aio-pika": (
        0.0, -0.0, 1.5, -1.5, 0.1, 1e30, 2.0**-100, 1.0, bytearray(b""), bytearray(b"\xff\x00"), [0.5],
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC).timetuple(),
    ),
}  # fmt: skip


def with_header(name: str) -> tuple[Message, ...]:
    values = [(client, value) for client in CLIENTS for value in (*BOTH, *ONE_CLIENT[client])]
    missing: tuple[Any, ...] = (None, {}, {name.upper(): "a"}, {"other": 1})
    return (
        *(
            Message(headers={"other": 1, name: value, "x-more": "z"}, client=client)
            for client, value in values
        ),
        *(Message(headers=headers, client=client) for client in CLIENTS for headers in missing),
    )


FLOATS = (0.0, -0.0, 1.5, -1.5, 0.1, 1e30, 2.0**-100, 1.0)
DOUBLES = (
    *FLOATS,
    1e300,
    -1e-300,
    2.0**-1074,
    0.1 + 0.2,
    1.7976931348623157e308,
    *(n / 7 for n in range(100)),
)
TYPED: dict[FieldType, Sequence[Any]] = {
    "byte": range(-128, 128),
    "unsignedbyte": range(256),
    "short": (0, -1, 5, 2**15 - 1, -(2**15), *range(-32_000, 32_000, 641)),
    "unsignedshort": (0, 5, 2**16 - 1, *range(0, 65_000, 641)),
    "signedint": (0, -1, 5, 2**31 - 1, -(2**31), *range(-(2**31), 2**31, 2**25 + 7)),
    "unsignedint": (0, 5, 2**32 - 1, *range(0, 2**32, 2**25 + 7)),
    "long": (0, -1, 5, 2**63 - 1, -(2**63), *range(-(2**63), 2**63, 2**57 + 7)),
    "bool": (True, False),
    "float": FLOATS,
    "double": DOUBLES,
    "decimal": ((0, 0), (2, 314), (255, 2**32 - 1), (0, 2**31), *((scale, 12_345) for scale in range(100))),
    "timestamp": (
        0,
        1,
        2**31,
        2**32,
        253_402_300_799,
        *range(1_700_000_000, 1_700_000_100),
    ),  # pika reads no more
    "longstr": TEXTS,
    "binary": (*TEXTS, b"\xff\x00", bytes(range(256))),
    "void": (None,),
}


def with_every_wire_type(name: str) -> tuple[Message, ...]:
    fields = [AmqpField(kind, value) for kind, values in TYPED.items() for value in values]
    nested = [AmqpField("array", [field, field]) for field in fields[::5]]
    nested += [AmqpField("table", {"k": field}) for field in fields[::5]]
    nested += [AmqpField("array", [field]) for field in nested[::10]]
    return tuple(Message(headers={name: field}) for field in (*fields, *nested))


def with_arrays_as(name: str) -> tuple[Message, ...]:
    return tuple(
        Message(headers={name: value}, client=client)
        for client in CLIENTS
        for value in (["a"], ["b"], ["c", "d"], ["0123456789"])
    )


IDS = (
    *HOSTILE_KEYS,
    *(f"m{n}" for n in range(200)),
    "550e8400-e29b-41d4-a716-446655440000",
    "urn:uuid:" + "0" * 8,
)
TIMES = (0, 1, 59, 1_700_000_000, 2**31, 2**37, 2**40, *range(1_700_000_001, 1_700_000_200))


def with_property(name: str) -> tuple[Message, ...]:
    values: tuple[Any, ...] = TIMES if name == "timestamp" else IDS
    given = (*({name: value} for value in values), {}, {"message_id": "x", "correlation_id": "y"})
    return tuple(
        Message(properties=properties, client=client)
        for client in CLIENTS
        for properties in given
        if client == "pika" or _sent_by_aio_pika(name, properties)
    )


def _sent_by_aio_pika(name: str, properties: dict[str, Any]) -> bool:
    """Return whether aio-pika sends these properties: it adds a message id, and refuses times after the year 9999."""
    return properties.get("timestamp", 0) < 2**38 and bool(name != "message_id" or properties.get(name))


MESSAGES = (
    Scenario("hostile-keys", FEW, with_routes()),
    Scenario("hash-header", FEW, with_header("tenant"), arguments={"hash-header": "tenant"}),
    Scenario("hash-header-x", FEW, with_header("x-tenant"), arguments={"hash-header": "x-tenant"}),
    Scenario("every-wire-type", SEVEN, with_every_wire_type("tenant"), arguments={"hash-header": "tenant"}),
    Scenario("hash-header-CC", FEW, with_arrays_as("CC"), arguments={"hash-header": "CC"}),
    Scenario("hash-header-BCC", FEW, with_arrays_as("BCC"), arguments={"hash-header": "BCC"}),
    *(
        Scenario(
            f"hash-{name.replace('_', '-')}", FEW, with_property(name), arguments={"hash-property": name}
        )
        for name in ("message_id", "correlation_id", "timestamp")
    ),
    Scenario("one-bucket", bound(("only", 1)), with_header("tenant"), arguments={"hash-header": "tenant"}),
)

E1 = ExchangeRef("e1")
X1, X2, X3 = "x1", "x2", "x3"
GOING = {
    X1: Temporary("exclusive", "one"),
    X2: Temporary("auto-delete", "one"),
    X3: Temporary("exclusive", "two"),
}
RINGS = (
    Scenario("weights-as-text", bound(("a", "007"), ("b", "+5"), ("c", "1"), ("d", "0400")), SOME),
    Scenario("exchanges-as-destinations", bound(("q", 2), (E1, 3), ("e1", 2), (ExchangeRef("q"), 1)), SOME),
    Scenario("exchange-unbound", (*bound(("q", 2), (E1, 3), ("r", 2)), unbound(E1, 3)), SOME),
    Scenario("exchange-deleted", (*bound(("q", 2), (E1, 3), ("r", 2)), deleted(E1)), SOME),
    Scenario("first-unbound", (*TEN, unbound("q0", 1)), SOME),
    Scenario("last-unbound", (*TEN, unbound("q9", 2)), SOME),
    Scenario("rebound", (*TEN, unbound("q4", 1), *bound(("q4", 1))), SOME),
    Scenario("weight-changed", (*TEN, unbound("q4", 1), *bound(("q4", 6))), SOME),
    Scenario("bound-again", (*FEW, *FEW), SOME),
    Scenario("queue-deleted", (*TEN, deleted("q5")), SOME),
    Scenario("all-unbound", (*bound(("a", 1), ("b", 2)), unbound("a", 1), unbound("b", 2)), SOME),
    Scenario("all-unbound-then-bound", (*bound(("a", 1)), deleted("a"), *bound(("b", 2), ("c", 1))), SOME),
    Scenario("second-binding", bound(("a", 2), ("b", 2), ("a", 3), ("c", 2)), SOME),
    Scenario(
        "second-binding-unbound", (*bound(("a", 2), ("b", 2), ("a", 3), ("c", 2)), unbound("a", 3)), SOME
    ),
    Scenario(
        "first-binding-unbound", (*bound(("a", 1), ("a", 3), ("b", 2), ("c", 4)), unbound("a", 1)), SOME
    ),
    Scenario("second-binding-of-last", (*bound(("b", 2), ("a", 1), ("a", 1 + 2)), unbound("a", 3)), SOME),
    Scenario("same-weight-twice", (*bound(("a", "2"), ("b", 2), ("a", "02")), deleted("a")), SOME),
    Scenario(
        "several-queues-deleted", (*TEN, deleted("q1"), deleted("q8"), *bound(("n", 3)), deleted("q4")), SOME
    ),
    Scenario(
        "exclusive-queue-gone",
        (*bound(("a", 2), (X3, 3), ("b", 2)), left("two")),
        SOME,
        temporary={X3: GOING[X3]},
    ),
    Scenario(
        "several-queues-gone",
        (*bound((X1, 1), ("a", 2), (X3, 3), (X2, 2), ("b", 2)), left("one"), *bound(("c", 1)), left("two")),
        SOME,
        temporary=GOING,
    ),
    Scenario("temporary-queues", bound((X1, 1), ("a", 2), (X3, 3), (X2, 2)), SOME, temporary=GOING),
    Scenario(
        "weight-more-than-held",
        (*bound(("a", 1), ("a", 5), ("b", 2)), unbound("a", 1), unbound("a", 5)),
        SOME,
    ),
    Scenario("nothing-bound", (), Keys("decimal", 50)),
)

MODULUS_HASH = (
    Scenario(
        "modulus-same-key", bound(*((q, "") for q in ("c", "a", "b"))), Keys("decimal", 20_000), MODULUS
    ),
    Scenario(
        "modulus-keys",
        bound(("q3", "1"), ("q1", "10"), ("q2", "2"), ("q2", "9"), ("q4", "é"), (ExchangeRef("q0"), "5")),
        Keys("decimal", 10_000),
        MODULUS,
    ),
    Scenario(
        "modulus-unbound",
        (*bound(("q3", "1"), ("q1", "10"), ("q2", "2"), ("q4", "9")), unbound("q1", "10"), deleted("q4")),
        SOME,
        MODULUS,
    ),
    Scenario(
        "modulus-CC", bound(("h1", "9"), ("h2", "10"), ("h2", "2"), ("h0", "5")), with_routes(), MODULUS
    ),
    Scenario("modulus-nothing-bound", (), Keys("decimal", 50), MODULUS),
)

SCENARIOS = (*MANY_KEYS, *MESSAGES, *RINGS, *MODULUS_HASH, *OVER_AMQP_10)


def scenarios_of(release: Release) -> tuple[Scenario, ...]:
    """Those for brokers of a release."""
    return tuple(scenario for scenario in SCENARIOS if release.numbers >= scenario.since)
