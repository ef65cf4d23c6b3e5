"""Each recipe that an error prints, run as it is printed on the rows that failed; what is then written is right."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import HashRing
from spark_connector import place, publish
from spark_connector.columns import COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("channel")]

WRONG_TYPES, BAD_ROWS = re.split(
    r"^## .*\n", Path(__file__).with_name("recipes.txt").read_text("utf-8"), flags=re.MULTILINE
)[1:]
RECIPE = re.compile(r"`((?:[^`]|(?<=[.(])`[^`]+`)+)`")  # SQL may have a name in backticks of its own


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 3, 1, 1).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows in one partition, so that one task writes them."""
    return reduce(lambda upper, lower: upper.unionByName(lower, allowMissingColumns=True), frames).coalesce(1)


@pytest.mark.extended
def test_the_printed_cast_repairs_a_column_of_another_type(spark: SparkSession, options, consumed) -> None:
    """All repaired rows are written at once: key and value say which one it is, but for the column itself."""
    cases: list[tuple[str, str, str]] = re.findall(r"^(\w+): (.*)\n-> (.*)", WRONG_TYPES, re.MULTILINE)
    assert {column for column, _, _ in cases} == {column.name for column in COLUMNS}
    options["allowExchangeColumn"] = True
    repaired: list[DataFrame] = []
    expected = []
    for column, sql, stored in cases:
        values = literal_eval(stored)
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


def test_a_row_that_amqp_cannot_carry(rows: DataFrame, options, consumed) -> None:
    row = rows.where("value = 'body 1'")
    cases: list[tuple[str, ...]] = re.findall(r"^(\w+): (.*)\n(.*?): ?(.*)\n-> (.*)", BAD_ROWS, re.MULTILINE)
    failing = [row.withColumn(column, F.expr(bad)) for column, bad, *_ in cases]
    with pytest.raises(
        RowError,
        match=r"row 0: column 'key' is null: filter such rows, or fill them with coalesce; 10 of 10 rows .* badRows=skip",
    ):
        publish(union(failing), options)
    report = publish(union(failing), {**options, "badRows": "skip"})
    assert report.skipped == len(report.samples) == len(cases) == 10
    repaired: list[DataFrame] = []
    expected = []
    for frame, (column, _, remedy, sql, value), sample in zip(failing, cases, report.samples, strict=True):
        assert remedy in sample.reason
        (repair,) = [sql] if sql else RECIPE.findall(sample.reason)
        number = str(len(repaired))
        repaired.append(frame.withColumns({column: F.expr(repair), "value": F.lit(number)}))
        expected.append(literal_eval(value))
    publish(union(repaired), options)
    written = {
        int(message.body): message.key if column == "key" else getattr(message.properties, column)
        for message in consumed()
        for column in [cases[int(message.body)][0]]
    }
    assert written == dict(enumerate(expected))


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
