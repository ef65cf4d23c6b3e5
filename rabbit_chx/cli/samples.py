"""Samples of keys: the option ``--keys``, and key files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rabbit_chx.cli.command import TEXT, option
from rabbit_chx.cli.inputs import STDIN, claim_stdin, expand_ranges, file_name, hashed_value, open_input
from rabbit_chx.errors import InputError, MissingExtraError
from rabbit_chx.options import ValueKind
from rabbit_chx.rendering.progress import reading, sign_of_life
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import plural
from rabbit_chx.version import install_command

if TYPE_CHECKING:
    import pyarrow as pa

    from rabbit_chx.analysis import SlotLoad
    from rabbit_chx.analysis.key_routing import Hashing, SampleBatch
    from rabbit_chx.planning.plan_value import Plan

# -- Columns of files of keys: CSV, which the standard library reads, Parquet, and lines of text

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


_FORMATS = {"": "text", ".txt": "text", ".log": "text", ".csv": "csv", ".parquet": "parquet"}
#: All keys of a batch are in memory at once.
_MOST_KEYS = 100_000_000
_BATCH = 1 << 14
_T = TypeVar("_T")


class KeyBatch(NamedTuple):
    """Some keys of a source, or all.

    Attributes:
        numbers: the line of each key, from 1; in a table its row, without the header.
        keys: the keys.
        messages: the number of messages of each key; None: one each.
        unit: the unit of `numbers`.
        file: the name of the file that has them; None for a range.
    """

    numbers: Sequence[int]
    keys: Sequence[str]
    messages: Sequence[int] | None = None
    unit: str = "line"
    file: str | None = None

    @contextmanager
    def name_errors(self, hashing: Hashing, source: KeyMap) -> Iterator[None]:
        """Add the key and its line to an error of a block that routes the keys."""
        try:
            yield
        except InputError as error:
            exchange = hashing.exchange(source)
            for number, key in zip(self.numbers, self.keys, strict=True):
                try:  # a single key, so that the error is not about a position in an array
                    exchange.route(**hashing.message(hashed_value(hashing, key)))
                except InputError as cause:
                    where = (
                        f"key {key!r:.60}" if self.file is None else f"{self.unit} {number} of {self.file}"
                    )
                    raise type(error)(f"{where}: {cause}") from None
            raise


_NO_KEYS = KeyBatch([], [])


@dataclass(frozen=True, slots=True)
class KeySource:
    """The value of ``--keys``: a range, or a file that is not yet read.

    A file ``.csv`` or ``.parquet`` is a table with the columns ``key`` and, if keys have several messages, ``count``; others have a key on
    each line.

    Attributes:
        path: the file, ``-`` for stdin; or the text of the range.
        made: the keys of a range; None for a file.
    """

    path: str
    made: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """The name of the file, or the range, for messages."""
        return file_name(self.path)

    def batches(self, *, progress: bool = False) -> Iterator[KeyBatch]:
        """Read the keys; a batch of lines contains all that can be read without waiting.

        An empty line is an empty key. A byte order mark at the beginning is skipped.
        """
        if self.made is not None:
            for start in range(0, len(self.made), _BATCH):
                keys = self.made[start : start + _BATCH]
                yield KeyBatch(range(start + 1, start + 1 + len(keys)), keys, unit="key")
            return
        format_ = _format_of(self.path, "key file")
        with _open(self.path, "keys", progress=progress) as file:
            if format_ == "text":
                yield from self._lines(file)
                return
            for rows in READERS[format_](self.name, file, self._columns):
                numbers = range(rows.first, rows.first + len(rows.values["key"]))
                yield KeyBatch(numbers, rows.values["key"], rows.values.get("count"), "row", self.name)

    def sample(self) -> Iterator[KeyBatch]:
        """Yield the batches with the progress of a file; an InputError if there are no keys."""
        empty = True
        for batch in self.batches(progress=True):
            empty = empty and not (batch.keys if batch.messages is None else any(batch.messages))
            yield batch
        if empty:
            raise InputError(f"{self.name} has no keys, or all counts are 0: pass at least one message")

    def read(self) -> KeyBatch:
        """Return all keys as one batch, each as often as it has messages."""
        keys: list[str] = []
        numbers: list[int] = []
        batch = _NO_KEYS
        for batch in self.sample():
            keys += batch.keys if batch.messages is None else _repeat(batch.keys, batch.messages)
            numbers += batch.numbers if batch.messages is None else _repeat(batch.numbers, batch.messages)
            if len(keys) > _MOST_KEYS:
                raise InputError(f"{self.name} has more than {_MOST_KEYS:,} messages: pass fewer")
        return batch._replace(keys=keys, numbers=numbers, messages=None)

    def _lines(self, file: Any) -> Iterator[KeyBatch]:  # BinaryIO has no read1
        number = 1
        for lines in line_batches(file):
            keys: list[str] = []
            for line in lines:
                try:
                    keys.append(line.removesuffix(b"\r").decode())
                except UnicodeDecodeError:
                    yield KeyBatch(range(number, number + len(keys)), keys, file=self.name)
                    where = f"line {number + len(keys)} of {self.name}"
                    raise InputError(f"{where} is not UTF-8: convert the file first") from None
            yield KeyBatch(range(number, number + len(keys)), keys, file=self.name)
            number += len(keys)

    def _columns(self, names: Sequence[str]) -> dict[str, str]:
        """Return the columns to read, by their contents; an error lists the existing columns."""
        columns = ["key", "count"] if "count" in names else ["key"]
        check_columns(self.name, columns, names)
        return {column: column for column in columns}


def _format_of(path: str, what: str) -> str:
    """Return the format of a file by its suffix; stdin has lines of text."""
    suffix = Path(path).suffix.lower()
    if path != STDIN and suffix not in _FORMATS:
        raise InputError(
            f"the {what} {file_name(path)} has the suffix {suffix}: pass lines of text as .txt, or a table as .csv or .parquet"
        )
    return "text" if path == STDIN else _FORMATS[suffix]


def table_rows(path: str, contents: str, columns_of: ColumnsOf) -> Iterator[TableRows]:
    """Read some columns of a table in batches: CSV or Parquet; stdin is CSV.

    Args:
        path: the file; ``-`` is stdin.
        contents: what it contains, for messages.
        columns_of: returns the columns to read.
    """
    format_ = "csv" if path == STDIN else _FORMATS.get(Path(path).suffix.lower(), "")
    if format_ not in READERS:
        raise InputError(
            f"the file of {contents} {file_name(path)} is not a table: pass one as .csv or .parquet"
        )
    with _open(path, contents) as file:
        yield from READERS[format_](file_name(path), file, columns_of)


@contextmanager
def _open(path: str, contents: str, *, progress: bool = True) -> Iterator[Any]:
    """Open a file of keys or stdin; errors of the block name the file."""
    name = file_name(path)
    what = "key file" if contents == "keys" else f"file of {contents}"
    try:
        with open_input(path, contents, what) as file, reading(name, file) if progress else nullcontext():
            yield file
    except InputError:
        raise
    except ImportError:
        raise MissingExtraError(
            f"{name} is Parquet, which needs pyarrow: {install_command('streams')}, or pass CSV"
        ) from None
    except (ValueError, csv.Error) as error:  # the errors of pyarrow are ValueErrors
        raise InputError(f"the {what} {name} cannot be read: {error!s:.200}") from None


def parse_keys(text: str) -> KeySource:
    """Parse the name of a file, or a text with a range."""
    made = expand_ranges([TEXT.value_of(text)])
    if made != [text]:
        return KeySource(text, made)
    if text == STDIN:
        claim_stdin("the keys")
    return KeySource(text)


def _repeat(keys: Sequence[_T], messages: Sequence[int]) -> Iterable[_T]:
    if sum(messages) > _MOST_KEYS:
        raise InputError(f"the counts add up to more than {_MOST_KEYS:,} messages: pass fewer")
    return chain.from_iterable(map(repeat, keys, messages))


@dataclass(slots=True)
class StreamedSample:
    """A sample that is read batch by batch, and counted meanwhile."""

    keys: KeySource
    hashing: Hashing
    source: KeyMap
    _batch: KeyBatch = _NO_KEYS

    def __iter__(self) -> Iterator[SampleBatch]:
        from rabbit_chx.analysis.key_routing import SampleBatch

        for batch in self.keys.sample():
            self._batch = batch
            values = [hashed_value(self.hashing, key) for key in batch.keys]
            yield SampleBatch(values, batch.messages, batch.keys)

    @contextmanager
    def name_errors(self) -> Iterator[None]:
        """Show the progress of a block that counts the batches, and add the key and its line to its error."""
        try:
            # reading a file shows its own progress
            with sign_of_life(f"counting {self.keys.name}") if self.keys.made else nullcontext():
                yield
        except InputError:
            with self._batch.name_errors(self.hashing, self.source):
                raise


def read_load(keys: KeySource, arguments: Mapping[str, str], key_map: KeyMap) -> SlotLoad:
    """Count the keys of a sample. The memory use does not grow with a file."""
    from rabbit_chx.analysis import SlotLoad
    from rabbit_chx.analysis.key_routing import Hashing

    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    batches = StreamedSample(keys, hashing, key_map)
    with batches.name_errors():
        load = SlotLoad.of_keys(key_map, batches, hashing=hashing)
    if load.sent == load.nowhere:
        raise InputError(
            f"{keys.name} does not contain a key that reaches a member: pass a sample of the exchange's own keys"
        )
    return replace(load, source=keys.name)


def heaviest_moves(keys: KeySource, plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Return whether the heaviest keys of a sample move in each exchange that a plan changes, in words; only where that is known."""
    from rabbit_chx.analysis import simulate
    from rabbit_chx.analysis.key_routing import Hashing
    from rabbit_chx.analysis.reports import heaviest_facts

    found = {}
    for name, change in plan.rings.items():
        exchange = plan.wanted.exchange(name)
        if exchange is None or change.matrix() is None or not change.moved:
            continue
        before = change.before
        after = change.after
        if change.slots is not None:
            slots_before, slots_after = change.slots
            before = slots_before.map_of(before)
            after = slots_after.map_of(after)
        hashed = {argument: exchange.arguments.get(argument) for argument in ("hash-header", "hash-property")}
        hashing = Hashing(hashed["hash-header"], hashed["hash-property"])
        batches = StreamedSample(keys, hashing, before)
        with batches.name_errors():
            counted = simulate(before, iter(batches), hashing=hashing, changed=after)
        if counted.sample is not None:
            found[name] = list(heaviest_facts(counted.sample))
    return found


def keys_option(use: str) -> Any:  # a field's default
    """Return a field that is the option of a sample of keys, whose help begins with its use."""
    return option(
        "--keys",
        section="Sample",
        type=ValueKind("keys", parse=parse_keys),
        metavar="FILE|RANGE",
        help=f"{use}: FILE with a key on each line, or .csv or .parquet with the columns key and, if there are several messages of a key, "
        "count, as from a GROUP BY; - is stdin; or a range, as 'user-{1..100000}'.",
    )
