"""Which column is what, and columns that cannot be."""

from __future__ import annotations

import pytest
from spark_messages import options_of, read, schema_of

from rabbit_chx.errors import InputError, RowError
from spark_connector.columns import MessageColumns


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("key string", {}, "column 'value' is missing: it holds the body of the message"),
        ("value string", {}, "column 'key' is missing: it holds its routing key"),
        (
            "key string, value int",
            {},
            r"column 'value' is int, not string or binary: use `cast\(value AS string\)`$",
        ),
        (
            "key string, value string, Priority string",
            {},
            r"'Priority' is string, not tinyint.*`cast\(Priority AS int\)`",
        ),
        (
            "key string, value string, headers map<string,int>",
            {},
            "is map<string,int>, not map<string,string>",
        ),
        (
            "key string, value string, city string",
            {},
            "column 'city' is not part of a message.*or set ignoreUnknown",
        ),
        ("key string, routing_key string, value string", {}, "there is a second column for the key"),
        ("key string, value string, exchange string", {}, "column 'exchange': set allowExchangeColumn"),
        ("key string, value string", {"exchange": "", "allowExchangeColumn": "true"}, "no column 'exchange'"),
        (
            "key string, value string",
            {"columnNames": '{"expiration": "ttl"}'},
            "column 'ttl' is missing, which columnNames names for the expiration",
        ),
        (
            "key string, value string, ttl int",
            {"columnNames": '{"expiration": "ttl"}'},
            "column 'ttl' is int, not string",
        ),
        (
            "key string, value string, ttl string, expiration string",
            {"columnNames": '{"expiration": "ttl"}'},
            "column 'expiration' is not part of a message",
        ),
        (
            "key string, value string",
            {"columnNames": '{"ttl": "key"}'},
            "'columnNames': 'ttl' is not part of a",
        ),
        ("key string, value string", {"routingKey": "k"}, "option 'routingKey' and a column 'key'"),
        ("key string, value string", {"messageId": "column"}, "there is no column 'message_id': add it"),
        ("key string, value string, message_id string", {"messageId": "auto"}, "drop one of them"),
    ],
)
def test_a_column_that_cannot_be_is_refused_with_the_cast_that_helps(
    ddl: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        MessageColumns.of(schema_of(ddl), options_of(**options))


@pytest.mark.parametrize("ddl", ["value string", "key string, value string"])
def test_rows_for_a_queue_need_no_key(ddl: str) -> None:
    assert MessageColumns.of(schema_of(ddl), options_of(exchange="", queue="orders")).key is None


def test_unknown_columns_can_be_left_out() -> None:
    columns = MessageColumns.of(
        schema_of("city int, VALUE binary, Routing_Key string, Type string"),
        options_of(ignoreUnknownColumns="true"),
    )
    assert (columns.value, columns.key, columns.properties) == (1, 2, {"type": 3})


def test_options_name_the_columns_of_parts() -> None:
    columns = MessageColumns.of(
        schema_of("Customer string, value string, TTL string"),
        options_of(columnNames='{"key": "customer", "message_id": "CUSTOMER", "Expiration": "ttl"}'),
    )
    assert (columns.key, columns.value) == (0, 1)
    assert columns.properties == {"message_id": 0, "expiration": 2}


def test_a_bad_row_is_named_by_its_column() -> None:
    rows = {"key": ["k"], "value": ["v"], "ttl": ["soon"]}
    with pytest.raises(RowError, match="column 'ttl' is b'soon': pass milliseconds"):
        read(rows, columnNames='{"expiration": "ttl"}')
