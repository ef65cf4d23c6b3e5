"""Which column is what, and columns that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from spark_messages import options_of, read, schema_of

from rabbit_chx.errors import InputError, RowError
from spark_connector.columns import MessageColumns

BOTH = "key string, value string"
TTL: dict[str, Any] = {"columnNames": '{"expiration": "ttl"}'}


def columns_of(ddl: str, **options: str) -> MessageColumns:
    return MessageColumns.of(schema_of(ddl), options_of(**options))


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("key string", {}, "column 'value' is missing: it holds the body of the message"),
        ("value string", {}, "column 'key' is missing: it holds its routing key"),
        ("key string, value int", {}, r"is int, not string or binary: use `cast\(value AS string\)`$"),
        (f"{BOTH}, Priority string", {}, r"'Priority' is string, not tinyint.*`cast\(Priority AS int\)`"),
        (f"{BOTH}, headers map<string,int>", {}, "is map<string,int>, not map<string,string>"),
        (f"{BOTH}, city string", {}, "column 'city' is not part of a message.*or set ignoreUnknown"),
        (f"{BOTH}, routing_key string", {}, "there is a second column for the key"),
        (f"{BOTH}, exchange string", {}, "column 'exchange': set allowExchangeColumn"),
        (BOTH, {"exchange": "", "allowExchangeColumn": "true"}, "no column 'exchange'"),
        (BOTH, TTL, "column 'ttl' is missing, which columnNames names for the expiration"),
        (f"{BOTH}, ttl int", TTL, "column 'ttl' is int, not string"),
        (f"{BOTH}, ttl string, expiration string", TTL, "column 'expiration' is not part of a message"),
        (BOTH, {"columnNames": '{"ttl": "key"}'}, "'columnNames': 'ttl' is not part of a"),
        (BOTH, {"routingKey": "k"}, "option 'routingKey' and a column 'key'"),
        (BOTH, {"messageId": "column"}, "there is no column 'message_id': add it"),
        (f"{BOTH}, message_id string", {"messageId": "auto"}, "drop one of them"),
    ],
)
def test_a_bad_column_is_refused_with_a_remedy(ddl: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        columns_of(ddl, **options)


def test_each_part_of_a_message_has_its_column() -> None:
    found = columns_of("city int, VALUE binary, Routing_Key string, Type string", ignoreUnknownColumns="true")
    assert (found.value, found.key, found.properties) == (1, 2, {"type": 3})
    names = '{"key": "customer", "message_id": "CUSTOMER", "Expiration": "ttl"}'
    found = columns_of("Customer string, value string, TTL string", columnNames=names)
    assert (found.key, found.value, found.properties) == (0, 1, {"message_id": 0, "expiration": 2})
    for ddl in ("value string", BOTH):
        assert columns_of(ddl, exchange="", queue="orders").key is None


def test_a_bad_row_is_named_by_its_column() -> None:
    with pytest.raises(RowError, match="column 'ttl' is b'soon': pass milliseconds"):
        read({"key": ["k"], "value": ["v"], "ttl": ["soon"]}, **TTL)
