"""Inputs that are nearly right, by the million: each from a seed, so that what was found can be had again.

``FUZZ_CASES`` is how many inputs each fuzzer takes, ``FUZZ_SEED`` which ones.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import pytest

Text = TypeVar("Text", str, bytes)

_CASES = int(os.environ.get("FUZZ_CASES", "2000"))
_SEED = os.environ.get("FUZZ_SEED", "0")
_SHARE = 10_000
_LARGEST = 200_000
_MOST_GROWTH_KB = 400_000


#: Integers at the edges of 1, 2, 4 and 8 bytes, as bytes.
NUMBERS = [
    number.to_bytes(size)
    for size in (1, 2, 4, 8)
    for number in (0, 1, 127, 128, 255, 1 << (8 * size - 1), (1 << 8 * size) - 1)
    if number < 1 << 8 * size
]


def any_byte(chance: random.Random) -> bytes:
    """Return one byte by chance."""
    return chance.randbytes(1)


def any_letter(chance: random.Random) -> str:
    """Return one letter by chance, in half of the cases of ASCII."""
    return chr(chance.choice((chance.randrange(128), chance.randrange(0x3000))))


def cut(chance: random.Random, data: bytes) -> list[bytes]:
    """Return the pieces of data that is cut at up to six places."""
    ends = sorted(chance.choices(range(len(data) + 1), k=chance.randint(0, 6)))
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def shares(each: int = 1) -> pytest.MarkDecorator:
    """Cut the inputs of a fuzzer into tests that take a minute or so.

    Args:
        each: for how many of the cases one input stands; more than one where it holds several, or is slow.
    """
    count = -(-_CASES // each)
    cuts = [range(first, min(first + _SHARE, count)) for first in range(0, count, _SHARE)]
    return pytest.mark.parametrize("share", cuts, ids=lambda cut: f"{cut[0]}-{cut[-1]}")


def fuzzed(make: Callable[[random.Random], Any], each: int = 1) -> Callable[[Callable[[Any], None]], Any]:
    """Return a decorator of a test: it is called with each input, in bounded memory.

    Args:
        make: makes an input.
        each: as of `shares`.
    """

    def decorate(test: Callable[[Any], None]) -> Any:
        @shares(each)
        def test_share(share: range) -> None:
            with bounded_memory():
                for chance in inputs(share):
                    given = make(chance)
                    with told(given):
                        test(given)

        return test_share

    return decorate


def inputs(share: range) -> Iterator[random.Random]:
    """Yield the source of chance for each input of a share."""
    for number in share:
        yield random.Random(f"{_SEED}-{number}")  # noqa: S311


@contextmanager
def told(given: object) -> Iterator[None]:
    """Name the input in whatever goes wrong with it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the input: {given!r}")
        raise


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Check that the process did not grow much while it took its share."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MOST_GROWTH_KB


class Mutator(Generic[Text]):
    """Makes inputs out of good ones.

    Args:
        good: the good ones.
        tokens: pieces that mean something in the language of the inputs.
        unit: makes one letter or byte by chance.
    """

    def __init__(
        self, good: Sequence[Text], tokens: Sequence[Text], unit: Callable[[random.Random], Text]
    ) -> None:
        self._good: Sequence[Text] = good
        self._tokens: Sequence[Text] = tokens
        self._unit: Callable[[random.Random], Text] = unit

    def mutated(self, chance: random.Random, text: Text | None = None, most: int = 6) -> Text:
        """Return a good input after a few changes; now and then after none.

        Args:
            chance: the source of chance.
            text: the good input; None for any.
            most: the most changes.
        """
        text = chance.choice(self._good) if text is None else text
        for _ in range(chance.randint(0, most)):
            start = chance.randint(0, len(text))
            end = min(len(text), start + int(chance.expovariate(0.2)))
            text = (text[:start] + self._piece(chance, text[start:end]) + text[end:])[:_LARGEST]
        return text

    def series(self, chance: random.Random, good: Sequence[Text], before: Text) -> Text:
        """Return up to eight good inputs after one another, mutated as a whole and some each for itself.

        Args:
            chance: the source of chance.
            good: the good inputs to choose from.
            before: what stands before them.
        """
        chosen = chance.choices(good, k=chance.randint(1, 8))
        joined = before[:0].join(
            self.mutated(chance, one, 2) if chance.random() < 0.3 else one for one in chosen
        )
        return before + self.mutated(chance, joined, 1)

    def _piece(self, chance: random.Random, there: Text) -> Text:
        match chance.randrange(7):
            case 0:
                return there[:0]
            case 1:
                return there + there
            case 2:
                other = chance.choice(self._good)
                start = chance.randint(0, len(other))
                return other[start : start + int(chance.expovariate(0.1))]
            case 3:
                return self._unit(chance) * chance.choice((1, 1, 1, 2, 30, 300))
            case 4:
                return there + self._unit(chance)
            case _:
                return chance.choice(self._tokens)
