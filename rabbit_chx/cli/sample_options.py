"""Samples of keys, and the options that ask for one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from rabbit_chx.cli.input_files import file_name, read_keys
from rabbit_chx.cli.option_groups import TEXT, Command, HashedKeys, with_options
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange, KeyMap, ring_beneath

__all__ = ["PATTERN_KEYS", "AskedSample", "Sample", "sample_options"]

PATTERN_KEYS = 100_000
#: They are in memory all at once.
_MOST_KEYS = 100_000_000
_NUMBER = "{n}"
_BATCH = 1 << 14


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of keys.

    Attributes:
        keys: the keys, one for each message.
        source: the file that has a key on each line; None for a pattern.
    """

    keys: Sequence[str]
    source: str | None = None

    @contextmanager
    def named(self, hashed: HashedKeys, ring: KeyMap) -> Iterator[None]:
        """Name the key and its line in an error of the block, which routes these keys.

        Args:
            hashed: what the exchange hashes for a key.
            ring: the ring that the block routes by.

        Raises:
            InputError: a key cannot be routed.
        """
        try:
            yield
        except InputError as error:
            for number, key in self._around_the_first_bad(hashed, ring):
                try:
                    _route(hashed, ring, key)
                except InputError as cause:
                    where = f"key {key!r:.60}" if self.source is None else f"line {number} of {self.source}"
                    raise type(error)(f"{where}: {cause}") from None
            raise

    def _around_the_first_bad(self, hashed: HashedKeys, ring: KeyMap) -> Iterator[tuple[int, str]]:
        """Yield the numbers, from 1, and the keys of the first batch that cannot be routed."""
        for start in range(0, len(self.keys), _BATCH):
            batch = self.keys[start : start + _BATCH]
            try:
                hashed.hashing.route_all(list(map(hashed.value, batch)), ring)
            except InputError:
                yield from enumerate(batch, start + 1)
                return


def _route(hashed: HashedKeys, ring: KeyMap, key: str) -> None:
    exchange = ConsistentHashExchange("sample", ring_beneath(ring), hashed.hashing.arguments)
    exchange.route(**hashed.hashing.message(hashed.value(key)))


@dataclass(frozen=True, slots=True)
class AskedSample:
    """The sample that the options ask for, not yet read.

    Attributes:
        key_file: a file of keys, or ``-`` for stdin; None where no file was given.
        pattern: the text that makes keys; None where none was given.
        count: how many keys the pattern makes; None where that was not given.
        default_count: how many keys the pattern makes then.

    Raises:
        InputError: the options contradict each other.
    """

    key_file: str | None
    pattern: str | None
    count: int | None
    default_count: int

    def __post_init__(self) -> None:
        if self.key_file is not None and self.pattern is not None:
            raise InputError("the sample is given twice, as a file and as a pattern: give it once")
        if self.key_file is not None and self.count is not None:
            raise InputError(
                f"--count {self.count} says how many keys a pattern makes: give --pattern, and no --keys"
            )
        if self.pattern is not None and _NUMBER not in self.pattern:
            raise InputError(
                f"the pattern {self.pattern!r:.60} makes one key only: write {_NUMBER} where its number belongs"
            )

    @property
    def given(self) -> bool:
        """Whether any of the options was given."""
        return (self.key_file, self.pattern, self.count) != (None, None, None)

    def read(self) -> Sample | None:
        """Return the sample; None where none was asked for.

        Raises:
            InputError: a count was given without a pattern, or the file cannot be read.
        """
        if self.count is not None and self.pattern is None:
            raise InputError(f"--count {self.count} says how many keys a pattern makes: give --pattern too")
        return self.read_or_make("") if self.given else None

    def read_or_make(self, pattern: str) -> Sample:
        """Return the sample; where neither a file nor a pattern was given, make it of this pattern.

        Args:
            pattern: the pattern to use then.

        Raises:
            InputError: the file cannot be read.
        """
        if self.key_file is not None:
            return Sample(read_keys(self.key_file), file_name(self.key_file))
        made = self.pattern or pattern
        return Sample([made.replace(_NUMBER, str(n)) for n in range(self.count or self.default_count)])


def sample_options(
    default_count: int = PATTERN_KEYS, default_pattern: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a sample; the command gets a `sample`, an `AskedSample`.

    Args:
        default_count: how many keys a pattern makes where that is not given.
        default_pattern: the pattern that the help names as the default; None where there is no default.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_sample(
            *,
            key_file: str | None,
            pattern: str | None,
            count: int | None,
            **others: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            return command(sample=AskedSample(key_file, pattern, count, default_count), **others)

        default = "" if default_pattern is None else f"  [default: {default_pattern}]"
        return with_options(
            with_sample,
            click.option(
                "--keys",
                "key_file",
                metavar="FILE",
                help="A file with a key on each line, as a sample; - is stdin.",
            ),
            click.option(
                "--pattern",
                type=TEXT,
                metavar="TEXT",
                help=f"A pattern in place of a file: {{n}} is a number from 0.{default}",
            ),
            click.option(
                "--count",
                type=click.IntRange(1, _MOST_KEYS),
                help=f"How many keys the pattern makes.  [default: {default_count:,}]",
            ),
        )

    return decorate
