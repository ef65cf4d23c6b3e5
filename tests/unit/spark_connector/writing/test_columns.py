"""Which column is what, and columns that cannot be."""

from __future__ import annotations

import pytest
from spark_messages import options_of, schema_of

from rabbit_chx.errors import InputError
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
        ("key string, value string", {"routingKey": "k"}, "option 'routingKey' and a column 'key'"),
        ("key string, value string", {"messageId": "column"}, "there is no column 'message_id': add it"),
        ("key string, value string, message_id string", {"messageId": "auto"}, "drop one of them"),
    ],
)
def test_bad_columns(ddl: str, options: dict[str, str], message: str) -> None:
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
