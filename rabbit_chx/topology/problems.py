"""Findings of mistakes in a topology file, and values and words for their text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rabbit_chx.analysis.findings import Finding

_SHOWN = 60


def file_finding(path: str, value: str, message: str, fix: str, line: int | None = None) -> Finding:
    """Return the finding of a mistake in a file.

    Args:
        path: the path of the field, such as ``exchanges[2].ring[0].weight``, counted from 0.
        value: its value as TOML, shortened; empty where something is missing.
        message: what is wrong.
        fix: what to do about it.
        line: the number of the line, counted from 1; None where it is not known.
    """
    return Finding("file", message, fix, subject=f"{path} = {value}" if value else path, line=line)


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
