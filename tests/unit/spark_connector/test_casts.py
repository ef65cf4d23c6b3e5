"""Names of columns in what Spark parses; `tests/spark/test_column_names.py` has each entry with such names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pyspark.sql import types
from spark_messages import options_of

import spark_connector
from rabbit_chx.errors import InputError
from spark_connector.columns import MessageColumns, check_order_type, quote_name


def test_a_name_is_quoted_where_spark_would_parse_it() -> None:
    for name, quoted in {"key": "key", "user.id": "`user.id`", "a`b": "`a``b`", "a b": "`a b`"}.items():
        assert quote_name(name) == quoted


TEXT, NUMBER = types.StringType(), types.IntegerType()


@pytest.mark.parametrize(
    ("part", "kind", "recipe"),
    [
        ("value", NUMBER, "`cast(`user.id` AS string)`"),
        ("key", types.ArrayType(NUMBER), "`to_json(`user.id`)`"),
        ("priority", TEXT, "`cast(`user.id` AS int)`"),
        ("timestamp", NUMBER, "`timestamp_seconds(`user.id`)`, or `timestamp_millis(`user.id`)`"),
        ("headers", types.MapType(NUMBER, TEXT), "map_entries(`user.id`)"),
    ],
)
def test_an_advised_cast_quotes_the_name(part: str, kind: types.DataType, recipe: str) -> None:
    fields = {"key": TEXT, "value": TEXT, "user.id": kind}
    schema = types.StructType([types.StructField(name, kind) for name, kind in fields.items()])
    options = options_of(columnNames=f'{{"{part}": "user.id"}}', ignoreUnknownColumns="true")
    with pytest.raises(InputError) as caught:
        MessageColumns.of(schema, options)
    assert recipe in str(caught.value)
    with pytest.raises(InputError, match=r"`cast\(`user\.id` as \.\.\.\)` makes one"):
        check_order_type(types.StructField("user.id", types.DoubleType()))


#: Methods and functions of Spark that parse a text as a name.
PARSING = {"col", "groupBy", "select", "sortWithinPartitions"}


def test_no_variable_is_parsed_as_a_name() -> None:
    """Constants, columns and the results of `quote_name` are. The frames of `reading` have our own columns."""
    found = []
    for path in sorted(Path(spark_connector.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            texts: list[ast.expr] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in PARSING:
                texts = node.args
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("df", "frame", "rows"):
                texts = [node.slice]
            variables = () if path.parent.name == "reading" else (ast.Name, ast.Attribute, ast.JoinedStr)
            found += [f"{path.name}: {ast.unparse(node)}" for each in texts if isinstance(each, variables)]
    assert found == []
