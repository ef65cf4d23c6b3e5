"""Files of keys: text, CSV, TSV, JSON lines and Parquet, each also gzipped."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from io import SEEK_CUR, BufferedReader, RawIOBase
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypeAlias

from rabbit_chx.cli.inputs import STDIN, claim_stdin, file_name, opened
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, MissingExtraError
from rabbit_chx.rendering import reading

if TYPE_CHECKING:
    import _csv

    from _typeshed import WriteableBuffer

_Kind: TypeAlias = Literal["text", "CSV", "TSV", "JSON lines", "Parquet"]
#: How many bytes of text, and how many rows of a table, are a batch.
_CHUNK_BYTES = 1 << 20
_ROWS = 1 << 15
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_NOT_KEYS = {
    b"ARROW1": "an Arrow file",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a zip file, as spreadsheets are",
}
_TAB_TABLES = (".tsv", ".tab")
_TABLES = (".csv", *_TAB_TABLES)
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_SEPARATORS = ",\t;"
_MOST_SHOWN = 20
_MARK = b"\xef\xbb\xbf"
_MOST_MESSAGES = 2**63 - 1
_MOST_DIGITS = len(str(_MOST_MESSAGES))


class KeyBatch(NamedTuple):
    """Keys of a file.

    Attributes:
        numbers: the line of each, from 1; in Parquet its row.
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
    """A file of keys, not yet read.

    Attributes:
        path: the file; ``-`` is stdin.
        column: the column that has the keys; None for a file of lines.
        count_column: the column that says how many messages have the key; None where each row is one message.
    """

    path: str
    column: str | None = None
    count_column: str | None = None

    @property
    def name(self) -> str:
        """The file's name for messages."""
        return file_name(self.path)

    def batches(self, *, progress: bool = False) -> Iterator[KeyBatch]:
        """Read the keys; a batch of lines is what can be read without waiting.

        An empty line is an empty key. A byte order mark at the beginning is skipped. What the file is taken for is said on
        stderr, unless it is a text of lines.

        Args:
            progress: whether to show how much of it is read.

        Raises:
            InputError: the file cannot be read, or has no such column, or holds something that is no key. The keys before it
                are yielded first.
        """
        if self.path == STDIN:
            claim_stdin("the keys")
        try:
            with opened(self.path, "keys") as file, reading(self.name, file) if progress else nullcontext():
                plain, packed = _peeked(file), False
                if plain.peek(1).startswith(_GZIP):
                    plain, packed = BufferedReader(gzip.GzipFile(fileobj=plain)), True
                line, plain = _first_line(plain)
                kind = self._kind(line)
                if kind == "text":
                    yield from self._lines(plain)
                    return
                if self.column is not None:
                    counted = f", and {self.count_column!r} how many messages" if self.count_column else ""
                    gzipped = " in gzip" if packed else ""
                    say(
                        f"{self.name} is read as {kind}{gzipped}: the column {self.column!r} has the keys{counted}"
                    )
                if kind == "JSON lines":
                    yield from self._json(plain)
                elif kind == "Parquet":
                    yield from self._parquet(plain)
                else:
                    yield from self._table(plain, self._separator(line))
        except (EOFError, zlib.error) as error:  # a gzip file that is cut off, or damaged
            raise InputError(f"the key file {self.name} cannot be read: {error}") from None
        except OSError as error:
            raise InputError(f"the key file {self.name} cannot be read: {error.strerror or error}") from None

    def _kind(self, line: bytes) -> _Kind:
        """Return what the file is, by its first line, then by its name; text becomes a table where a column is asked for."""
        for mark, what in _NOT_KEYS.items():
            if line.startswith(mark):
                raise InputError(
                    f"{self.name} is {what}: give the keys as text, CSV, TSV, JSON lines or Parquet, also in gzip"
                )
        if line.startswith(_PARQUET):
            return "Parquet"
        if self._bare_path.endswith(_JSON_LINES) or _is_object(line.removeprefix(_MARK)):
            return "JSON lines"
        if self._bare_path.endswith(_TABLES) or self.column is not None:
            return "TSV" if self._separator(line) == "\t" else "CSV"
        if self.count_column is not None:
            raise InputError(
                f"--count-column {self.count_column} needs --column, which says what has the keys"
            )
        return "text"

    @property
    def _bare_path(self) -> str:
        return self.path.lower().removesuffix(".gz")

    def _separator(self, header: bytes) -> str:
        """Return what separates columns: a tab by the name of the file, or what is most often in the first line."""
        if b"\t" in header and self._bare_path.endswith(_TAB_TABLES):
            return "\t"
        return max(_SEPARATORS, key=lambda separator: header.count(separator.encode()))

    def _lines(self, file: BufferedReader) -> Iterator[KeyBatch]:
        number = 1
        for lines in _line_batches(file):
            keys, bad = _decoded(lines)
            if keys:
                yield KeyBatch(range(number, number + len(keys)), keys)
            if bad:
                raise self._not_utf8(number + len(keys))
            number += len(keys)

    def _table(self, file: BufferedReader, separator: str) -> Iterator[KeyBatch]:
        rows = self._rows(csv.reader(self._texts(file), delimiter=separator, strict=True))
        _, names = next(rows, (1, []))
        key, count = self._columns(names)
        while batch := list(islice(rows, _ROWS)):
            for number, row in batch:
                if len(row) != len(names):
                    raise InputError(
                        f"line {number} of {self.name} does not fit the header, {len(row)} against {len(names)} columns: mend it, or quote "
                        "what has a separator in it"
                    )
            yield self._batch(
                [number for number, _ in batch],
                [row[key] for _, row in batch],
                None if count is None else [row[count] for _, row in batch],
            )

    def _texts(self, file: BufferedReader) -> Iterator[str]:
        for number, line in enumerate(file, 1):
            try:
                yield (line.removeprefix(_MARK) if number == 1 else line).decode()
            except UnicodeDecodeError:
                raise self._not_utf8(number) from None

    def _rows(self, reader: _csv.Reader) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not blank, each with the line on which it begins."""
        number = 1
        try:
            for row in reader:
                if row:
                    yield number, row
                number = reader.line_num + 1
        except csv.Error as error:
            remedy = (
                "its lines end in CR: convert them to LF"
                if "new-line" in str(error)
                else "mend its quotes; one in a field is doubled"
            )
            raise InputError(
                f"line {number} of {self.name} is no CSV that can be read: {error}: {remedy}"
            ) from None

    def _json(self, file: BufferedReader) -> Iterator[KeyBatch]:
        lines = enumerate(file, 1)
        while batch := list(islice(lines, _ROWS)):
            numbers, rows = [], []
            for number, line in batch:
                if line.strip():
                    try:
                        row = json.loads(line)
                    except UnicodeDecodeError:
                        raise self._not_utf8(number) from None
                    except (ValueError, RecursionError) as error:
                        raise InputError(f"line {number} of {self.name} is no JSON: {error}") from None
                    if not isinstance(row, dict):
                        raise InputError(
                            f"line {number} of {self.name} is no JSON object: write {{...}} on each line"
                        )
                    numbers.append(number)
                    rows.append(row)
            if self.column is None or (rows and batch[0][0] == 1):
                self._columns(list(rows[0]) if rows else [])
            counts = None if self.count_column is None else [row.get(self.count_column) for row in rows]
            yield self._batch(numbers, [row.get(self.column) for row in rows], counts)

    def _parquet(self, file: BufferedReader) -> Iterator[KeyBatch]:
        try:
            from pyarrow import ArrowException, parquet
        except ImportError:
            raise MissingExtraError(
                f"{self.name} is a Parquet file, which needs pyarrow: pip install 'rabbit-chx[spark]', or give CSV"
            ) from None
        with ExitStack() as stack:
            whole: IO[bytes] = file
            if not file.seekable():  # its footer is at the end
                whole = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, whole)
            try:
                table = parquet.ParquetFile(whole)
                self._columns(table.schema_arrow.names)
                names, number = [name for name in (self.column, self.count_column) if name is not None], 1
                for part in table.iter_batches(_ROWS, columns=names):
                    values = [part.column(name).to_pylist() for name in names]
                    numbers = range(number, number + len(part))
                    yield self._batch(numbers, values[0], values[1] if self.count_column else None, "row")
                    number += len(part)
            except InputError:
                raise
            except (ArrowException, ValueError, OverflowError) as error:  # a time that Python does not have
                raise InputError(f"{self.name} is no Parquet that can be read: {error}") from None

    def _columns(self, names: Sequence[str]) -> tuple[int, int | None]:
        """Return the positions of the columns; an error names those that there are."""
        shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
        if self.column is None:
            raise InputError(
                f"{self.name} has columns: say by --column which has the keys: {shown or 'there are none'}"
            )
        for name in (self.column, self.count_column):
            if name is not None and name not in names:
                raise InputError(f"{self.name} has no column {name!r}: it has {shown or 'none'}")
            if name is not None and (same := names.count(name)) > 1:
                raise InputError(f"{self.name} has {same} columns {name!r}: give each a name of its own")
        return names.index(self.column), None if self.count_column is None else names.index(self.count_column)

    def _batch(
        self, numbers: Sequence[int], values: list[Any], counts: list[Any] | None, unit: str = "line"
    ) -> KeyBatch:
        """Return a batch of rows: whole numbers as text, and counts as numbers."""
        keys, messages = values, None
        if not set(map(type, values)) <= {str}:
            keys = [
                self._key(f"{unit} {number}", value) for number, value in zip(numbers, values, strict=True)
            ]
        if counts is not None:
            messages = [
                self._count(f"{unit} {number}", value) for number, value in zip(numbers, counts, strict=True)
            ]
        return KeyBatch(numbers, keys, messages, unit)

    def _key(self, where: str, value: object) -> str:
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise self._refusal(where, self.column, value, "a key is UTF-8") from None
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        raise self._refusal(where, self.column, value, "a key is text or a whole number")

    def _count(self, where: str, value: object) -> int:
        count = -1
        if isinstance(value, str):
            digits = value.strip()
            if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
                count = int(digits)
        elif isinstance(value, int) and not isinstance(value, bool):
            count = value
        # pandas writes counts so where some are missing.
        elif isinstance(value, float) and value.is_integer():
            count = int(value)
        if not 0 <= count <= _MOST_MESSAGES:
            raise self._refusal(
                where, self.count_column, value, "a count is a whole number from 0, below 2^63"
            )
        return count

    def _refusal(self, where: str, column: str | None, value: object, remedy: str) -> InputError:
        try:
            shown = f"{value!r:.60}"
        except ValueError:  # Python writes no number of thousands of digits
            shown = "a huge number"
        return InputError(f"{where} of {self.name} has {shown} in the column {column!r}: {remedy}")

    def _not_utf8(self, number: int) -> InputError:
        return InputError(f"line {number} of {self.name} is not UTF-8: convert the file first")


class _Rejoined(RawIOBase):
    """A file of which the beginning was read already."""

    def __init__(self, beginning: bytes, rest: BufferedReader) -> None:
        self._beginning = beginning
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer)
        chunk = self._beginning[: len(target)] or self._rest.read1(len(target))
        self._beginning = self._beginning[len(target) :]
        target[: len(chunk)] = chunk
        return len(chunk)


def _first_line(file: BufferedReader) -> tuple[bytes, BufferedReader]:
    """Return the first line, or as much of it as a batch holds, and the file from its beginning."""
    line = file.readline(_CHUNK_BYTES)
    if file.seekable() and not isinstance(file.raw, gzip.GzipFile):  # what is unpacked may be a pipe
        file.seek(-len(line), SEEK_CUR)
        return line, file
    return line, BufferedReader(_Rejoined(line, file), _CHUNK_BYTES)


def _peeked(file: BufferedReader | BinaryIO) -> BufferedReader:
    return file if isinstance(file, BufferedReader) else BufferedReader(file)  # type: ignore[arg-type]


def _is_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    if len(line) >= _CHUNK_BYTES:  # no whole line
        return line.startswith(b'{"')
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _line_batches(file: BufferedReader) -> Iterator[list[bytes]]:
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


def _decoded(lines: list[bytes]) -> tuple[list[str], bool]:
    """Return the lines as text up to the first that is not UTF-8, and whether there is such a line."""
    keys: list[str] = []
    try:
        for line in lines:
            keys.append(line.removesuffix(b"\r").decode())  # noqa: PERF401  # those before a bad one are kept
    except UnicodeDecodeError:
        return keys, True
    return keys, False
