"""What a member decides at one queue: each story of `ownership_stories.txt` is events, with the commands that follow each.

python tests/unit/consuming/test_ownership.py    # writes the commands of this version into the file
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from stories import each_story, played, write_stories

from rabbit_chx.consuming.ownership import POLL, DeliveredMessage, QueueOwnership, TimerReason
from rabbit_chx.consuming.settings import FailurePolicy, GroupMember
from rabbit_chx.topology.slots import HandOverMarker

STORIES = Path(__file__).with_name("ownership_stories.txt")
WORDS = {
    "none": None,
    "failed": True,
    "poll": POLL,
    "retry": TimerReason("retry", 0),
    "hand-over": TimerReason("hand-over", 2),
}
#: The events up to the first ack of a member that gets the queue, as the first story tells them.
ACTIVE = ("consume", "subscribed 1", "delivered 1 1", "claimed 1 40", "hook_done", "handled 1 1")


def word_of(value: object) -> str:
    """Return an argument of an event or a command as its word in a story: messages are their tags, and markers their kinds."""
    if isinstance(value, DeliveredMessage):
        return f"{value.tag}" if value.key in ("", "k") else f"{value.tag}:{value.key}"
    if isinstance(value, HandOverMarker):
        return f"{value.kind}/{value.slot}/{value.id}"
    return value.kind if isinstance(value, TimerReason) else f"{value}"


def argument(word: str) -> Any:
    """Return the argument of an event: a number, ``2:key`` or ``2!kind/slot/id`` for a message with a key or a marker."""
    if word in WORDS:
        return WORDS[word]
    tag, _, key = word.partition(":")
    if key:
        return DeliveredMessage(int(tag), key)
    tag, _, kind = word.partition("!")
    if kind:
        kind, slot, number, *nobody = kind.split("/")
        marker: Any = HandOverMarker(kind, slot, number, "e.park")  # type: ignore[arg-type]
        return DeliveredMessage(int(tag), "", marker=marker, reply_to=None if nobody else "mover")
    return int(tag)


def play(ownership: QueueOwnership, event: str) -> str:
    """Return the commands after an event, or the value of a property."""
    name, *words = event.split()
    method = getattr(ownership, f"on_{name}", None) or getattr(ownership, name)
    if not callable(method):
        return f"{method}"
    given = [argument(word) for word in words[:2]]
    if name in ("delivered", "fetched") and isinstance(given[1], int):
        given[1] = DeliveredMessage(given[1], "k")
    commands = method(*given, **dict.fromkeys(words[2:], True))
    told = [
        [type(command).__name__, *(word_of(getattr(command, field.name)) for field in fields(command))]
        for command in commands
    ]
    return "; ".join(" ".join(words) for words in told)


def begin(how: str) -> QueueOwnership:
    """Return an ownership that is ``new`` or ``active``, with these options."""
    state, *options = how.split()
    given: dict[str, Any] = {}
    failures: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        kind = failures if name in ("retries", "backoff_s", "on_failure") else given
        kind[name] = WORDS.get(value, int(value) if value.isdigit() else value)
    ownership = QueueOwnership("q", GroupMember("a", **given, failures=FailurePolicy(**failures)))
    for event in ACTIVE if state == "active" else ():
        play(ownership, event)
    return ownership


@each_story(STORIES)
def test_each_event_of_a_story_has_its_commands(how: str, lines: list[str]) -> None:
    assert played(partial(play, begin(how)), lines) == lines


if __name__ == "__main__":
    write_stories(STORIES, lambda how: partial(play, begin(how)))
