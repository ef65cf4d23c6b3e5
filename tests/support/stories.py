"""Stories: a text file of events, with what follows each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rabbit_chx.errors import RabbitChxError

#: Plays an event, and tells what follows.
Play: TypeAlias = Callable[[str], str]


def read_stories(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the title, the begin and the lines of each story."""
    for story in path.read_text(encoding="utf-8").strip().split("\n\n"):
        title, how, *lines = story.splitlines()
        yield title, how.strip(), [line.strip() for line in lines]


def each_story(path: Path) -> Any:
    """Return the mark of a test that is run with the begin and the lines of each story."""
    return pytest.mark.parametrize(
        ("how", "lines"), [pytest.param(how, lines, id=title) for title, how, lines in read_stories(path)]
    )


def played(play: Play, lines: list[str]) -> list[str]:
    """Return the lines with what follows in this version."""
    events = [line.partition("->")[0].strip() for line in lines]
    return [f"{event:35} -> {play(event)}".rstrip() for event in events]


def write_stories(path: Path, begin: Callable[[str], Play]) -> None:
    """Write what follows in this version into the file."""
    told = [[title, how, *played(begin(how), lines)] for title, how, lines in read_stories(path)]
    text = "\n\n".join("\n    ".join(story) for story in told)
    path.write_text(f"{text}\n", encoding="utf-8")


def refusals(call: Callable[..., object]) -> Play:
    """Return how to play a call: its arguments in JSON are followed by its error, if it has one."""

    def play(event: str) -> str:
        try:
            call(**json.loads(event))
        except RabbitChxError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return play
