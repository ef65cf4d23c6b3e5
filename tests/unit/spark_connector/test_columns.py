"""Which column is what. `options/refusals.txt` has the columns that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from spark_messages import options_of, read, schema_of

from rabbit_chx.errors import RowError
from spark_connector.columns import MessageColumns

BOTH = "key string, value string"
TTL: dict[str, Any] = {"columnNames": '{"expiration": "ttl"}'}


def columns_of(ddl: str, **options: str) -> MessageColumns:
    return MessageColumns.of(schema_of(ddl), options_of(**options))


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
