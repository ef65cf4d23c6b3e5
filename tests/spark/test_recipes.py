"""Each recipe that an error prints, run as it is printed on the rows that failed; what is then written is right."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rabbit_chx.errors import InputError, MismatchError, RowError
from rabbit_chx.routing import HashRing
from spark_connector import place, publish
from spark_connector.columns import COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("channel")]

RECIPE = re.compile(r"`((?:[^`]|(?<=[.(])`[^`]+`)+)`")  # SQL may have a name in backticks of its own
TEXTS = ("message_id", "correlation_id", "content_type", "content_encoding", "type", "app_id", "reply_to")
#: A column, SQL of a type that it does not take, and what each recipe of the error makes of it.
WRONG_TYPES: list[tuple[str, str, list[Any]]] = [
    ("value", "5", [b"5"]),
    ("value", "1.5D", [b"1.5"]),
    ("value", "true", [b"true"]),
    ("value", "DATE'2013-01-01'", [b"2013-01-01"]),
    ("value", "named_struct('a', 1, 'b', 'x')", [b'{"a":1,"b":"x"}']),
    ("value", "map('a', 1)", [b'{"a":1}']),
    ("value", "array(1, 2)", [b"[1,2]"]),
    ("key", "7L", ["7"]),
    ("key", "named_struct('a', 1)", ['{"a":1}']),
    ("exchange", "encode('x', 'utf-8')", ["x"]),
    ("headers", "map('n', 5)", [{"n": "5"}]),
    ("headers", "map('n', encode('é', 'utf-8'))", [{"n": "é"}]),
    ("headers", "map('n', 1.5D, 'none', null)", [{"n": "1.5", "none": None}]),
    ("headers", "map('n', array(1, 2))", [{"n": "[1,2]"}]),
    ("headers", "map(1, 'x', 2, 'y')", [{"1": "x", "2": "y"}]),
    (
        "headers",  # as Kafka has them
        "array(named_struct('key', 'h', 'value', encode('é', 'utf-8')), named_struct('key', 'g', 'value', null))",
        [{"h": "é", "g": None}],
    ),
    ("headers", "array(named_struct('its name', 'h', '2nd', 7))", [{"h": "7"}]),
    ("headers", "array(1, 2)", [{"name": "[1,2]"}]),
    ("headers", "named_struct('a', 1, 'b', 'x', 'c', array(1))", [{"a": "1", "b": "x", "c": "[1]"}]),
    ("headers", """'{"a": 1}'""", [{"a": "1"}, {"name": '{"a": 1}'}]),
    ("headers", "5", [{"name": "5"}]),
    *[(name, "7", ["7"]) for name in TEXTS],
    ("expiration", "60000L", ["60000"]),
    ("priority", "'5'", [5]),
    ("priority", "5L", [5]),
    ("delivery_mode", "'1'", [1]),
    ("timestamp", "'2013-01-01T00:00:01Z'", [1_356_998_401]),
    ("timestamp", "1356998401L", [1_356_998_401, 1_356_998]),
    ("timestamp", "1356998401D", [1_356_998_401]),
    ("timestamp", "1356998", [1_356_998, 1_356]),
]


@pytest.fixture
def options(vhost_url: str) -> dict[str, object]:
    return {"url": vhost_url, "exchange": "x"}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 3, 1, 1).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows in one partition, so that one task writes them."""
    return reduce(lambda upper, lower: upper.unionByName(lower, allowMissingColumns=True), frames).coalesce(1)


def test_the_printed_cast_repairs_a_column_of_another_type(spark: SparkSession, options, consumed) -> None:
    """All repaired rows are written at once: key and value say which one it is, but for the column itself."""
    assert {column for column, _, _ in WRONG_TYPES} == {column.name for column in COLUMNS}
    options["allowExchangeColumn"] = True
    repaired: list[DataFrame] = []
    expected = []
    for column, sql, values in WRONG_TYPES:
        columns = {"key": "'k'", "value": "'v'", column: sql}
        failing = spark.sql("SELECT " + ", ".join(f"{sql} AS {name}" for name, sql in columns.items()))
        with pytest.raises(InputError, match=rf"column '{column}' is .*, not .*: use `") as caught:
            publish(failing, options)
        recipes = RECIPE.findall(str(caught.value))
        assert len(recipes) == len(values), caught.value
        for recipe, value in zip(recipes, values, strict=True):
            name = F.lit(f"case {len(repaired)}")
            others = {other: name for other in ("key", "value") if other != column}
            repaired.append(failing.withColumns({column: F.expr(recipe), **others}))
            expected.append((column, sql, recipe, value))
    publish(union(repaired), options)

    written = list(expected)
    for message in consumed():
        number = next(
            int(text[5:]) for text in (message.key, message.body.decode()) if text.startswith("case ")
        )
        column, sql, recipe, _ = expected[number]
        parts = {"value": message.body, "key": message.key, "exchange": "x"}
        written[number] = column, sql, recipe, parts.get(column, getattr(message.properties, column, None))
    assert written == expected


def test_a_column_that_is_too_much_is_put_into_the_value_or_allowed(
    rows: DataFrame, options, channel, consumed
) -> None:
    city = rows.withColumn("city", F.lit("Basel"))
    with pytest.raises(InputError, match=r"put it into the value with `(to_json\(struct\(\*\)\))`") as caught:
        publish(city, options)
    (recipe,) = RECIPE.findall(str(caught.value))
    publish(city.selectExpr("key", f"{recipe} AS value"), options)
    assert {message.key: json.loads(message.body)["city"] for message in consumed()} == {
        f"key {number}": "Basel" for number in range(3)
    }

    with pytest.raises(InputError, match="set allowExchangeColumn to true, or drop the column"):
        publish(rows.withColumn("exchange", F.lit("amq.fanout")), options)
    channel.queue_bind("q2", "amq.fanout")
    publish(rows.withColumn("exchange", F.lit("amq.fanout")), {**options, "allowExchangeColumn": True})
    assert [message.queue for message in consumed()] == ["q2"] * 3


#: A column, what it is in the row that AMQP cannot carry, the remedy, SQL that follows it (None: the SQL is printed), and
#: what the row's message then has.
BAD_ROWS: list[tuple[str, str, str, str | None, object]] = [
    ("key", "string(null)", "filter such rows, or fill them with coalesce", "coalesce(key, 'none')", "none"),
    ("key", "repeat('k', 256)", "shorten it, or use its hash", "left(key, 255)", "k" * 255),
    (
        "key",
        "repeat('k', 256)",
        "shorten it, or use its hash",
        "md5(key)",
        "e2ebd1a42d61bbbc708b0c137383cfa1",
    ),
    ("message_id", "repeat('m', 256)", "shorten it, or use its hash", "left(message_id, 3)", "mmm"),
    ("headers", "map('CC', 'k', 'h', 'v')", "leave it out: ", None, {"h": "v"}),
    ("headers", "map('h', cast(X'FF' AS string))", "encode it with base64: ", None, {"h": "/w=="}),
    ("headers", "map(cast(X'FF' AS string), 'v')", "encode it with base64: ", None, {"/w==": "v"}),
    ("headers", "map(repeat('h', 256), 'v')", "shorten it: ", None, {"h" * 255: "v"}),
    ("priority", "300", "0 to 255 is possible", "least(priority, 255)", 255),
    ("expiration", "'1 h'", "pass milliseconds", "'3600000'", "3600000"),
]


def test_a_row_that_amqp_cannot_carry(rows: DataFrame, options, consumed) -> None:
    row = rows.where("value = 'body 1'")
    failing = [row.withColumn(column, F.expr(bad)) for column, bad, *_ in BAD_ROWS]
    with pytest.raises(
        RowError,
        match=r"row 0: column 'key' is null: filter such rows, or fill them with coalesce; 10 of 10 rows .* badRows=skip",
    ):
        publish(union(failing), options)
    report = publish(union(failing), {**options, "badRows": "skip"})
    assert report.skipped == len(report.samples) == len(BAD_ROWS)
    repaired: list[DataFrame] = []
    expected = []
    for frame, (column, _, remedy, sql, value), sample in zip(failing, BAD_ROWS, report.samples, strict=True):
        assert remedy in sample.reason
        (repair,) = [sql] if sql else RECIPE.findall(sample.reason)
        number = str(len(repaired))
        repaired.append(frame.withColumns({column: F.expr(repair), "value": F.lit(number)}))
        expected.append(value)
    publish(union(repaired), options)
    written = {
        int(message.body): message.key if column == "key" else getattr(message.properties, column)
        for message in consumed()
        for column in [BAD_ROWS[int(message.body)][0]]
    }
    assert written == dict(enumerate(expected))


def test_an_exchange_of_another_type_is_refused_and_without_ordering_published(
    rows: DataFrame, options, channel, consumed
) -> None:
    """The broker's own exchanges cannot be deleted, and a user's own may be in use."""
    for number in range(3):
        channel.queue_bind("q1", "amq.direct", f"key {number}")
    options["exchange"] = "amq.direct"
    with pytest.raises(MismatchError) as caught:
        publish(rows, {**options, "ordering": "per-key"})
    assert "is of type direct, and option 'ordering' needs x-consistent-hash" in str(caught.value)
    assert "delete" not in str(caught.value)
    assert not consumed()
    assert publish(rows, options).confirmed == 3
    assert [message.queue for message in consumed()] == ["q1"] * 3


def test_the_printed_cast_repairs_the_key_of_a_placement(spark: SparkSession, options, consumed) -> None:
    ring = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
    failing = spark.range(0, 30, 1, 1).selectExpr("id AS `customer id`", "string(id) AS value")
    with pytest.raises(
        InputError, match="column 'customer id' is bigint, not string or binary: use `"
    ) as caught:
        place(failing, ring, key="customer id")
    (recipe,) = RECIPE.findall(str(caught.value))
    repaired = failing.withColumn("customer id", F.expr(recipe))
    publish(place(repaired, ring, key="customer id").withColumnRenamed("customer id", "key"), options)
    messages = consumed()
    assert {message.key for message in messages} == {str(number) for number in range(30)}
    assert all(message.queue == ring.destination_for(message.key) for message in messages)
