"""The picture of docs/architecture.md: the floors, as the import linter's contract in pyproject.toml has them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from rabbit_chx.rendering.svg import ON_SCALE, SCALE, Canvas, ThemeName

_WIDTH, _ROW, _TOP, _LEFT = 880, 46, 60, 24
_ROOM_GAP = 10
_SUBTITLES = {
    "pyspark_rabbitmq": "lets Spark find the format",
    "spark_connector": "DataFrames and streams to RabbitMQ",
    "cli": "rabbit-chx",
    "testing": "real brokers for tests",
    "rendering": "console, JSON, pages",
    "broker": "all else that talks to a live broker",
    "consuming": "what handles the messages",
    "publishing": "rows, each answered",
    "streams": "the log, as columns",
    "topology": "what should be on a broker",
    "analysis": "shares, movement, statistics",
    "connection": "one connection with confirms",
    "routing": "what the broker does with a message",
    "erlang": "terms and hashes, bit for bit",
    "amqp": "AMQP 0-9-1 without I/O",
    "checks": "numbers in their range",
    "drive": "generators, step by step",
    "errors": "one tree of exceptions",
    "lazy_names": "names loaded when used",
    "version": "of this package",
}


def floors() -> list[list[str]]:
    """Return the rooms of each floor, the top floor first, as in pyproject.toml."""
    settings = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = ([room.strip() for room in layer.split("|")] for layer in layers)
    return [[room for room in floor if not room.startswith("(")] for floor in rooms]


def draw(theme: ThemeName) -> str:
    """Return the SVG."""
    house = floors()
    height = _TOP + len(house) * _ROW + 24
    canvas = Canvas(_WIDTH, "The floors of the house; imports run downward only", height=height, theme=theme)
    canvas.text(
        _LEFT, 34, "Imports run downward only. Rooms of one floor do not import each other.", bold=True
    )
    for number, rooms in enumerate(house):
        y = _TOP + number * _ROW
        width = (_WIDTH - 2 * _LEFT - _ROOM_GAP * (len(rooms) - 1)) / len(rooms)
        for at, room in enumerate(rooms):
            name = room.removeprefix("rabbit_chx.")
            x = _LEFT + at * (width + _ROOM_GAP)
            colour = SCALE[0] if room != name else SCALE[1]
            canvas.rect(x, y, width, _ROW - 8, fill=colour, radius=4)
            canvas.text(x + 12, y + 24, name, fill=ON_SCALE, mono=True, bold=True)
            canvas.text(x + width - 12, y + 24, _SUBTITLES[name], fill=ON_SCALE, anchor="end", size=12)
    return canvas.svg()
