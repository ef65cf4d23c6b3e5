"""What is wrong with a topology file: every mistake with its place, its value, the rule and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake.

    Attributes:
        path: the place in the file, such as ``exchanges[2].ring[0].weight``, counted from 0.
        value: what is there, as TOML writes it, shortened; empty where something is missing.
        rule: what is wrong.
        remedy: what to do about it.
        line: the number of the line, counted from 1; None where it is not known.
    """

    path: str
    value: str
    rule: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"line {self.line}, {self.path}"
        return f"{place}{self.value and f' = {self.value}'}: {self.rule}; {self.remedy}"


def similar(word: str, words: Iterable[str]) -> str | None:
    """Return the word that was probably meant, if any is close."""
    by_lower = {known.lower(): known for known in words}
    close = get_close_matches(word.lower().replace("-", "_"), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def shown_value(value: Any) -> str:  # noqa: ANN401  # whatever a file holds
    """Return a value for a message, as TOML writes it, shortened."""
    if value is None:
        return ""
    text = _written(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _written(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{name} = {_written(inner)}" for name, inner in list(value.items())[:_SHOWN])
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value[:_SHOWN]))}]"
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return str(value)
