"""Files of keys: lines of text, CSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.cli.inputs import STDIN, claim_stdin, file_name, opened
from rabbit_chx.errors import InputError, MissingExtraError
from rabbit_chx.rendering import reading

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS = {"": "text", ".txt": "text", ".log": "text", ".csv": "csv", ".parquet": "parquet"}
#: How many bytes of text, and how many rows of Parquet, are a batch.
_CHUNK_BYTES = 1 << 20
_ROWS = 1 << 15
_MOST_SHOWN = 20
_MARK = b"\xef\xbb\xbf"


class KeyBatch(NamedTuple):
    """Keys of a file.

    Attributes:
        numbers: the line of each, from 1; in a table its row, without the header.
        keys: the keys.
        messages: how many messages have each; None for one.
        unit: what the numbers count.
    """

    numbers: Sequence[int]
    keys: list[str]
    messages: list[int] | None = None
    unit: str = "line"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of keys, not yet read. The suffix of its name tells its format; stdin is CSV where a column is given.

    Attributes:
        path: the file; ``-`` is stdin.
        column: the column with the keys, or ``NAME=COUNTS`` with that of the number of messages of each key too; None for a file
            of lines.
    """

    path: str
    column: str | None = None

    @property
    def name(self) -> str:
        """The file's name for messages."""
        return file_name(self.path)

    def batches(self, *, progress: bool = False) -> Iterator[KeyBatch]:
        """Read the keys; a batch of lines is what can be read without waiting.

        An empty line is an empty key. A byte order mark at the beginning is skipped.

        Args:
            progress: whether to show how much of it is read.

        Raises:
            InputError: the file cannot be read, or has no such column, or a row has no key. The keys before it are yielded
                first.
            MissingExtraError: the file is a table, and pyarrow is not installed.
        """
        suffix = Path(self.path).suffix.lower()
        if suffix not in _FORMATS:
            raise InputError(
                f"the key file {self.name} has the suffix {suffix}: give lines of text as .txt, or a table as .csv or .parquet"
            )
        is_piped_table = self.path == STDIN and self.column is not None
        format_ = "csv" if is_piped_table else _FORMATS[suffix]
        if format_ == "text" and self.column is not None:
            raise InputError(
                f"the key file {self.name} has no column {self.column!r}, only lines: give a table as .csv or .parquet"
            )
        if self.path == STDIN:
            claim_stdin("the keys")
        read = {"text": self._lines, "csv": self._csv, "parquet": self._parquet}[format_]
        try:
            with opened(self.path, "keys") as file, reading(self.name, file) if progress else nullcontext():
                yield from read(file)
        except InputError:
            raise
        except ImportError:
            raise MissingExtraError(
                f"{self.name} is a table, which needs pyarrow: pip install 'rabbit-chx[streams]', or give lines of text"
            ) from None
        except (OSError, ValueError, csv.Error) as error:  # the errors of pyarrow are ValueErrors
            why = str(getattr(error, "strerror", None) or error)
            raise InputError(f"the key file {self.name} cannot be read: {why:.200}") from None

    def _lines(self, file: Any) -> Iterator[KeyBatch]:  # noqa: ANN401  # BinaryIO has no read1
        number = 1
        for lines in _line_batches(file):
            keys: list[str] = []
            for line in lines:
                try:
                    keys.append(line.removesuffix(b"\r").decode())
                except UnicodeDecodeError:
                    yield KeyBatch(range(number, number + len(keys)), keys)
                    where = f"line {number + len(keys)} of {self.name}"
                    raise InputError(f"{where} is not UTF-8: convert the file first") from None
            yield KeyBatch(range(number, number + len(keys)), keys)
            number += len(keys)

    def _csv(self, file: Any) -> Iterator[KeyBatch]:  # noqa: ANN401  # as above
        from pyarrow import csv as arrow
        from pyarrow import string, uint64

        names = next(csv.reader([file.readline().decode("utf-8-sig")]), [])
        columns = self._columns(names)
        rows = arrow.open_csv(
            file,
            arrow.ReadOptions(column_names=names, use_threads=False),  # with threads errors name no row
            arrow.ParseOptions(newlines_in_values=True),
            arrow.ConvertOptions(
                include_columns=columns, column_types=dict(zip(columns, (string(), uint64()), strict=False))
            ),
        )
        yield from self._rows(rows, columns)

    def _parquet(self, file: Any) -> Iterator[KeyBatch]:  # noqa: ANN401  # as above
        from pyarrow import parquet

        table = parquet.ParquetFile(file)
        columns = self._columns(table.schema_arrow.names)
        yield from self._rows(table.iter_batches(_ROWS, columns=columns), columns)

    def _columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read; an error names those that there are."""
        shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
        if self.column is None:
            raise InputError(f"{self.name} has columns: give --column NAME, one of {shown or 'none'}")
        key, equals, counts = self.column.rpartition("=")
        columns = [key, counts] if equals and self.column not in names else [self.column]
        for name in columns:
            if name not in names:
                raise InputError(f"{self.name} has no column {name!r}: it has {shown or 'none'}")
            if names.count(name) > 1:
                raise InputError(f"{self.name} has several columns {name!r}: give each a name of its own")
        return columns

    def _rows(self, batches: Iterable[pa.RecordBatch], columns: list[str]) -> Iterator[KeyBatch]:
        """Return the rows with whole numbers as text, and counts as numbers."""
        from pyarrow import int64, string, types, uint64

        first, key, counts = 1, columns[0], columns[1:]
        for batch in batches:
            type_ = batch.column(key).type
            type_ = type_.value_type if types.is_dictionary(type_) else type_
            if str(type_).removeprefix("large_") not in ("string", "binary") and not types.is_integer(type_):
                raise InputError(
                    f"{self.name} has {type_} in the column {key!r}: a key is text or a whole number"
                )
            keys = self._listed(batch, key, first, string())
            messages = self._listed(batch, counts[0], first, uint64(), int64()) if counts else None
            yield KeyBatch(range(first, first + len(keys)), keys, messages, "row")
            first += len(keys)

    def _listed(self, batch: pa.RecordBatch, name: str, first: int, *types: pa.DataType) -> list[Any]:
        """Return the values of a column, cast to one type after the other: uint64 refuses negative counts."""
        values = batch.column(name)
        try:
            for type_ in types:
                values = values.cast(type_)
        except ValueError as error:
            raise InputError(f"the column {name!r} of {self.name} cannot be read: {error}") from None
        listed = values.to_pylist()
        if None in listed:
            raise InputError(
                f"row {first + listed.index(None)} of {self.name} has null in the column {name!r}"
            )
        return listed


def _line_batches(file: Any) -> Iterator[list[bytes]]:  # noqa: ANN401  # as above
    """Yield as many whole lines as can be read without waiting for more."""
    begun: list[bytes] = []
    mark = _MARK
    while chunk := file.read1(_CHUNK_BYTES):
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*begun, head]).removeprefix(mark).split(b"\n")
            begun, mark = [], b""
        if rest:
            begun.append(rest)
    if last := b"".join(begun).removeprefix(mark):
        yield [last]
