"""The scenarios over AMQP 1.0, which brokers speak natively from 4.0 on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.amqp.amqp10_values import Amqp10Type
from routes.scenario import MODULUS, Message, Scenario, Step

SINCE = (4, 0, 0)
SEVEN = tuple(Step("bind", f"q{number}", str(1 + number % 3)) for number in range(7))
BY_HEADER = {"hash-header": "tenant"}

TEXTS = ("", "a", "tenant-7", "naïve", "日本語", "undefined", "5", "😀", "t" * 255, "t" * 256, "t" * 1000)
UUIDS = tuple(UUID(int=number * 0x1234_5678_9ABC_DEF0_0FED_CBA9 + 7) for number in range(300))
FLOATS = (0.0, -0.0, 1.5, -1.5, 0.1, 1e30, 2.0**-100, 1.0, float("inf"), float("-inf"), float("nan"))
BARE: tuple[Any, ...] = (
    *TEXTS, *UUIDS[:100], *FLOATS, *(number / 7 for number in range(100)), 1e300, 2.0**-1074,
    True, False, None, b"", b"a", b"\xff\x00", bytes(range(256)), "x" * 70_000,
    *range(-300, 300), 2**21, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), ["a"], [], {}, {"a": 1},
)  # fmt: skip
TYPED: dict[Amqp10Type, Sequence[Any]] = {
    "ubyte": range(256),
    "byte": range(-128, 128),
    "ushort": (0, 5, 2**16 - 1, *range(0, 65_000, 641)),
    "short": (0, -1, 2**15 - 1, -(2**15), *range(-32_000, 32_000, 641)),
    "uint": (0, 5, 255, 256, 2**32 - 1, *range(0, 2**32, 2**25 + 7)),
    "int": (0, -1, 127, -128, 128, -129, 2**31 - 1, -(2**31), *range(-(2**31), 2**31, 2**25 + 7)),
    "ulong": (0, 5, 255, 256, 2**63, 2**64 - 1, *range(0, 2**64, 2**57 + 7)),
    "long": (0, -1, 127, -128, 128, -129, 2**63 - 1, -(2**63), *range(-(2**63), 2**63, 2**57 + 7)),
    "float": FLOATS,
    "char": ("a", "é", "日", "😀", "\0", "\U0010ffff", *map(chr, range(200))),
    "timestamp": (0, 1, -1, 1_700_000_000_123, 2**63 - 1, -(2**63), *range(1_700_000_000_000, 1_700_000_100_000, 999)),
    "symbol": ("", "a", "tenant-7", "s" * 255, "s" * 300),
    "decimal32": (None,),
    "decimal64": (None,),
    "decimal128": (None,),
    "array": (None,),
}  # fmt: skip

IDS: tuple[Any, ...] = (
    *TEXTS, *UUIDS, *map(str, UUIDS[:50]), *(f"urn:uuid:{uuid}" for uuid in UUIDS[:50]), *(uuid.bytes for uuid in UUIDS[:50]),
    *range(300), 2**21, 2**27, 2**32, 2**63, 2**64 - 1, b"", b"a", b"\xff\x00", bytes(range(256)), *(f"m{n}" for n in range(200)),
)  # fmt: skip
TIMES = (
    1, 999, 1000, 1001, 1_700_000_000_123, 2**40, 253_402_300_800_000, -1, -999, -1000, -1_500,
    *range(1_700_000_000_000, 1_700_000_400_000, 777),
)  # fmt: skip
KEYS = (
    "", " ", "0", "5", "-1", "k" * 255, "#", "*", "a.b.#", "undefined", "/", "%", "%2F", "a/b", "a+b", "?", "a b", "é", "日本語",
    "😀", "\U0010ffff", "\0", "\n", "\x7f", '"', "'; DROP", "$(id)", "é" * 127, "😀" * 63, "k" * 256, "é" * 500,
)  # fmt: skip


def over(**given: Any) -> Message:
    return Message(**given, client="amqp-1.0")


def with_property(name: str, values: tuple[Any, ...]) -> tuple[Message, ...]:
    missing: tuple[dict[str, Any], ...] = ({}, {"message_id": "x"} if name != "message_id" else {})
    return tuple(
        over(properties=properties) for properties in (*({name: value} for value in values), *missing)
    )


def with_header(name: str) -> tuple[Message, ...]:
    values = [*BARE, *(Amqp10Value(kind, value) for kind, some in TYPED.items() for value in some)]
    missing: tuple[Any, ...] = (None, {}, {name.upper(): "a"}, {"other": 1})
    return (
        *(over(headers={"other": 1, name: value, "z": "z"}) for value in values),
        *(over(headers=headers) for headers in missing),
    )


def with_annotation(name: str) -> tuple[Message, ...]:
    values: tuple[Any, ...] = (
        "a",
        "b",
        5,
        -5,
        1.5,
        True,
        False,
        UUIDS[0],
        b"x",
        Amqp10Value("ulong", 2**64 - 1),
        "x-y",
    )
    return (
        *(over(headers={name: value}) for value in values),
        *(over(properties={"message_annotations": {name: value}}) for value in values),
        *(over(headers={name: "of the application"}, properties={"message_annotations": {name: value}}) for value in values),
    )  # fmt: skip


OVER_AMQP_10 = (
    Scenario("amqp10-keys", SEVEN, tuple(over(key=key) for key in KEYS), since=SINCE),
    Scenario(
        "amqp10-keys-in-to",
        SEVEN,
        tuple(over(key=f"{key}{n}"[-255:]) for n in range(50) for key in KEYS if len(key) < 40),
        since=SINCE,
    ),
    *(
        Scenario(
            f"amqp10-{name.replace('_', '-')}",
            SEVEN,
            with_property(name, values),
            arguments={"hash-property": hashed},
            since=SINCE,
        )
        for name, values, hashed in (
            ("message_id", IDS, "message_id"),
            ("correlation_id", IDS, "correlation_id"),
            ("creation_time", TIMES, "timestamp"),
        )
    ),
    Scenario("amqp10-application-property", SEVEN, with_header("tenant"), arguments=BY_HEADER, since=SINCE),
    Scenario(
        "amqp10-annotation",
        SEVEN,
        with_annotation("x-tenant"),
        arguments={"hash-header": "x-tenant"},
        since=SINCE,
    ),
    Scenario(
        "amqp10-modulus-x-cc",
        tuple(Step("bind", f"h{n}", "") for n in range(5)),
        tuple(over(key=f"k{n}", cc=cc) for n in range(50) for cc in ((), ("a",), ("a", "b"), ("",), ("é",))),
        MODULUS,
        since=SINCE,
    ),
)
