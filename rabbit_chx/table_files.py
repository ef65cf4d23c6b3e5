"""Columns of files of keys: CSV, which the standard library reads, Parquet, and lines of text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.errors import InputError
from rabbit_chx.words import plural

if TYPE_CHECKING:
    import pyarrow as pa

#: The size of a batch: bytes of text, rows of a table.
_CHUNK_BYTES = 1 << 20
_ROWS = 1 << 15
_MOST_MESSAGES = (1 << 63) - 1
#: The contents of columns that may be empty or missing, and have any type.
_OPTIONAL = ("time", "exchange")
_MOST_SHOWN = 20
_MARK = b"\xef\xbb\xbf"


class TableRows(NamedTuple):
    """Some rows of a table.

    Attributes:
        first: the number of the first of them, from 1, without the header.
        values: the values of each column, by its content: text of a ``key`` or a ``queue``; a number of messages of a ``count``; text or
            None of a ``time`` or an ``exchange``.
    """

    first: int
    values: Mapping[str, list[Any]]


#: The columns of a table to read, by their contents, of all its columns.
ColumnsOf = Callable[[Sequence[str]], Mapping[str, str]]


def _csv_rows(name: str, file: Any, columns_of: ColumnsOf) -> Iterator[TableRows]:
    lines = (line.decode() for line in chain([file.readline().removeprefix(_MARK)], file))
    reader = csv.reader(lines, strict=True)
    names = next(reader, [])
    places = {content: names.index(column) for content, column in columns_of(names).items()}
    number = 1

    def rows() -> Iterator[list[str]]:
        nonlocal number
        try:
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise InputError(
                        f"row {number} of {name} has {plural(len(row), 'column')}, and the header has {len(names)}"
                    )
                yield row
                number += 1
        except UnicodeDecodeError:
            raise InputError(f"row {number} of {name} is not UTF-8: convert the file first") from None
        except csv.Error as error:
            raise InputError(f"row {number} of {name} cannot be read: {error}") from None

    source = rows()
    first = 1
    while batch := [*islice(source, _ROWS)]:
        values: dict[str, list[Any]] = {
            content: [row[place] for row in batch] for content, place in places.items()
        }
        for content in _OPTIONAL:
            values |= {content: [text or None for text in values[content]]} if content in values else {}
        if "count" in values:
            values["count"] = [
                _messages(text, f"row {row} of {name}") for row, text in enumerate(values["count"], first)
            ]
        yield TableRows(first, values)
        first += len(batch)


def _messages(text: str, where: str) -> int:
    """Return a number of messages, written as text."""
    digits = text.strip(" ")
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= _MOST_MESSAGES):
        raise InputError(f"{where} has the count {text!r:.40}: a number of messages is a whole number")
    return int(digits)


def _parquet_rows(name: str, file: Any, columns_of: ColumnsOf) -> Iterator[TableRows]:
    from pyarrow import int64, parquet, string, uint64

    table = parquet.ParquetFile(file)
    columns = columns_of(table.schema_arrow.names)
    types = {"count": (uint64(), int64())}  # uint64 refuses negative counts
    first = 1
    for batch in table.iter_batches(_ROWS, columns=[*columns.values()]):
        values = {}
        for content, column in columns.items():
            if content not in ("count", *_OPTIONAL):
                _check_text_column(name, batch, column, content)
            listed = _list_column(name, batch, column, *types.get(content, (string(),)))
            if content not in _OPTIONAL and None in listed:
                row = first + listed.index(None)
                raise InputError(f"row {row} of {name} has null in the column {column!r}")
            values[content] = listed
        yield TableRows(first, values)
        first += batch.num_rows


#: What reads a table of a format: its name for messages, the open file, and the columns to read.
READERS = {"csv": _csv_rows, "parquet": _parquet_rows}


def shown_names(names: Sequence[str]) -> str:
    """Return the first names of the columns of a file."""
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")


def check_columns(file: str, columns: Iterable[str], names: Sequence[str]) -> None:
    """Raise an InputError unless each column is one of the names, once."""
    for name in columns:
        if name not in names:
            raise InputError(f"{file} has no column {name!r}: it has {shown_names(names) or 'no columns'}")
        if names.count(name) > 1:
            raise InputError(f"{file} contains several columns {name!r}: name each differently")


def _check_text_column(file: str, batch: pa.RecordBatch, name: str, content: str) -> None:
    """Raise an InputError unless a column has text, bytes or integers."""
    from pyarrow import types

    type_ = batch.column(name).type
    type_ = type_.value_type if types.is_dictionary(type_) else type_
    if str(type_).removeprefix("large_").removesuffix("_view") not in (
        "string",
        "binary",
    ) and not types.is_integer(type_):
        raise InputError(
            f"the column {name!r} of {file} has the type {type_}: a {content} is text or an integer"
        )


def _list_column(file: str, batch: pa.RecordBatch, name: str, *types: pa.DataType) -> list[Any]:
    """Return the values of a column, cast to one type after the other."""
    from pyarrow import ArrowException

    values = batch.column(name)
    try:
        for type_ in types:
            values = values.cast(type_)
    except (ArrowException, ValueError) as error:
        raise InputError(
            f"the column {name!r} of {file} has the type {batch.column(name).type} and cannot be read: {error!s:.200}"
        ) from None
    return values.to_pylist()


def line_batches(file: Any) -> Iterator[list[bytes]]:  # BinaryIO has no read1
    """Yield as many whole lines as can be read without waiting for more."""
    begun: list[bytes] = []
    mark = _MARK
    while chunk := file.read1(_CHUNK_BYTES):
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*begun, head]).removeprefix(mark).split(b"\n")
            begun = []
            mark = b""
        if rest:
            begun.append(rest)
    if last := b"".join(begun).removeprefix(mark):
        yield [last]
