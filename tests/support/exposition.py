"""A strict parser of Prometheus' text format: what it does not allow is an error."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = frozenset[tuple[str, str]]


class Family:
    """A metric: its help, its type and its values by their labels."""

    def __init__(self, help_: str) -> None:
        self.help = help_
        self.type = ""
        self.values: dict[Labels, float] = {}

    def value(self, **labels: str) -> float:
        """Return the only value whose labels include these."""
        (found,) = self.matching(**labels).values()
        return found

    def matching(self, **labels: str) -> dict[Labels, float]:
        """Return the values whose labels include these."""
        return {known: value for known, value in self.values.items() if labels.items() <= dict(known).items()}


def parsed_exposition(text: str) -> dict[str, Family]:
    """Return the metrics of a text.

    Raises:
        AssertionError: the text breaks the format.
    """
    assert text.endswith("\n"), "the last line has to end"
    families: dict[str, Family] = {}
    current = ""
    for line in text.removesuffix("\n").split("\n"):
        if help_ := re.fullmatch(rf"# HELP ({_NAME}) (.+)", line):
            current = help_[1]
            assert current not in families, f"{current} is there twice"
            assert not re.search(r"\\(?![\\n])", help_[2].replace("\\\\", "")), line
            families[current] = Family(help_[2])
        elif type_ := re.fullmatch(rf"# TYPE ({_NAME}) (gauge|counter)", line):
            assert type_[1] == current, f"TYPE without its HELP: {line}"
            assert not families[current].type, line
            assert not families[current].values, line
            families[current].type = type_[2]
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, f"no sample: {line}"
            assert sample[1] == current, f"a sample of another metric: {line}"
            assert families[current].type, f"a sample before its type: {line}"
            labels = _labels(sample[2] or "")
            assert labels not in families[current].values, f"twice: {line}"
            families[current].values[labels] = float(sample[3])
    return families


def _labels(text: str) -> Labels:
    assert re.fullmatch(f"(?:{_LABEL})*", text), f"no labels: {text}"
    pairs = re.findall(_LABEL, text)
    labels = {name: re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], value) for name, value in pairs}
    assert len(labels) == len(pairs), f"a label is there twice: {text}"
    return frozenset(labels.items())
