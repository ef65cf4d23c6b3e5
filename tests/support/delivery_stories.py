"""Deliveries as stories: what a program hands over and what the broker does meanwhile, with what was sent, counted and raised.

An action is `publish BODIES`, `hand BODIES`, `drain`, `finish` or `connect`, with the script of the broker behind a colon: events with commas between
them, `nack 1 + lost` in one poll, `nothing x3` three times, and `ack...` for ever. Other lines are `refuse REASON`, the outcome of the
next attempt to connect, and `meanwhile EVENT`, between two actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from itertools import repeat
from typing import Any

import scripted_delivery as scripted

from rabbit_chx import errors
from rabbit_chx.amqp.frames import error_for
from rabbit_chx.publishing.options import Limits

REFUSALS: dict[str, errors.RabbitChxError] = {
    "down": errors.UnreachableError("nobody answers"),
    "a-down": errors.UnreachableError("a is down"),
    "b-down": errors.UnreachableError("b is down"),
    "denied": errors.AccessRefusedError("403 login was refused", reply_code=403),
    "full": errors.ConnectionLimitError("530 limit reached", reply_code=530),
    "starting": errors.BrokerRefusedError("541 vhost is down", reply_code=541),
}
#: The texts of the broker; `xc` is the exchange of the row.
TEXTS = {
    "320": "CONNECTION_FORCED - user 'u' is deleted",
    "403": "ACCESS_REFUSED - access to topic 'k' in exchange 'xc' in vhost '/' refused for user 'u'",
    "404": "NOT_FOUND - no exchange 'xc' in vhost '/'",
    "406": "PRECONDITION_FAILED - message size 1 is larger than configured max size 0",
    "406-of-no-row": "PRECONDITION_FAILED - message size 9 is larger than configured max size 8",
    "501": "FRAME_ERROR",
    "504": "CHANNEL_ERROR",
    "505": "UNEXPECTED_FRAME",
    "506": "RESOURCE_ERROR",
    "541": "INTERNAL_ERROR",
    "denied": "ACCESS_REFUSED - access to exchange 'xc' in vhost '/' refused for user 'u'",
    "expired": "ACCESS_REFUSED - access to exchange 'xc' in vhost '/' refused for user 'u': Provided JWT token has expired",
}
COUNTS = ("confirmed", "returned", "nacked", "unknown", "retried", "republished", "reconnects")


def number_of(text: str) -> Any:
    """Return the value of an option; `3R+2` are the bytes of three rows and two more."""
    rows, is_bytes, more = text.partition("R")
    if is_bytes:
        return int(rows) * scripted.ROW_BYTES + int(more or 0)
    return text == "yes" if text in ("yes", "no") else float(text) if "." in text else int(text)


class DeliveryStory:
    """A delivery with these options of limits and retries; `to=ab` has two targets."""

    def __init__(self, how: str) -> None:
        given = dict(option.split("=") for option in how.split() if "=" in option)
        targets = {"ab": (scripted.A, scripted.B)}.get(given.pop("to", "a"), (scripted.A,))
        options = {name: number_of(text) for name, text in given.items()}
        limits = {field.name: options.pop(field.name) for field in fields(Limits) if field.name in options}
        self.looks: list[str] = []
        self.broker = scripted.Broker(
            [], *targets, limits=Limits(**{"max_in_flight": 10, **limits}), **options
        )

    def play(self, event: str) -> str:
        """Execute an action, and return what was sent over each connection, the counts, the pauses and the error."""
        broker, (action, _, script) = self.broker, event.partition(":")
        word, *rest = action.split()
        if word == "refuse":
            reason, _, times = rest[0].partition("*")
            broker.refusals += [REFUSALS[reason]] * int(times or 1)
        elif word == "meanwhile":
            self.event(" ".join(rest))(broker.connections[-1])
        else:
            broker.follow(self.events(script))
            if script.strip().startswith("closes"):
                self.fail(*script.strip(" .").split()[1:])
            return "; ".join(filter(None, [self.error_of(word, " ".join(rest)), *self.told()]))
        return ""

    def fail(self, _over: str, bodies: str, *code: str) -> None:
        """Let channels fail over rows to an exchange that is missing, so that they answer no probe behind it."""
        is_missing = code[:1] == ("404",)
        self.broker.fails_over = bodies if is_missing else ""
        for connection in self.broker.connections:
            connection.fails_over = self.broker.fails_over

    def error_of(self, word: str, bodies: str) -> str:
        """Execute an operation, and return its error."""
        broker = self.broker
        try:
            match word:
                case "publish" | "hand":
                    rows = [body.partition("@")[::2] for body in bodies.split()]
                    exchanges = [exchange for _, exchange in rows] if "@" in bodies else None
                    broker.hand_over(" ".join(body for body, _ in rows), exchanges)
                case "connect":
                    broker.run(broker.delivery.connect())
                case "finish":
                    broker.delivery.finish()
            if word in ("publish", "drain"):
                broker.drain()
        except errors.RabbitChxError as cause:
            return f"{type(cause).__name__}: {cause}"
        return ""

    def told(self) -> Iterator[str]:
        """Yield what was sent over each connection, and what was counted and done."""
        broker, report = self.broker, self.broker.delivery.report
        yield " ".join("".join(connection.bodies) or "-" for connection in broker.connections)
        yield " ".join(f"{name}={getattr(report, name)}" for name in COUNTS if getattr(report, name))
        yield ", ".join(
            f"closed by {str(error).partition(' (')[0]}" for error in broker.delivery.tally.closes
        )
        yield f"looks {' '.join(self.looks)}" if self.looks else ""
        yield f"pauses {' '.join(f'{pause:g}' for pause in broker.slept)}" if broker.slept else ""
        yield f"opened {''.join(broker.opened)}"

    def events(self, script: str) -> Iterable[scripted.Event]:
        """Yield the events of a script."""
        for item in filter(None, map(str.strip, script.split(","))):
            text, times = re.fullmatch(r"(.*?)(?: x(\d+))?", item, re.DOTALL).groups()  # type: ignore[union-attr]  # all matches
            if text.endswith("..."):
                yield from repeat(self.event(text.removesuffix("...")))
            yield from [self.event(text)] * int(times or 1)

    def event(self, text: str) -> scripted.Event:
        """Return an event."""
        if " + " in text:
            return scripted.all_of(*map(self.event, text.split(" + ")))
        word, *rest = text.split()
        numbers = [int(each) for each in rest if each.isdigit()]
        makers: dict[str, Callable[[], scripted.Event]] = {
            "ack": lambda: scripted.ack(*numbers, multiple="alone" not in rest),
            "nack": lambda: scripted.nack(*numbers),
            "returned": lambda: scripted.returned(*numbers),
            "lost": lambda: scripted.lost(close(*rest) if rest else None),
            "wait": lambda: lambda _: setattr(self.broker, "now", self.broker.now + numbers[0]),
            "look": lambda: lambda connection: self.looks.append("".join(connection.bodies) or "-"),
            "closes": lambda: lambda connection: close_over(connection, *rest[1:]),
            "breaks": lambda: lambda connection: break_over(connection, *rest[1:]),
            "nothing": lambda: scripted.nothing,
            "blocked": lambda: scripted.blocked,
            "unblocked": lambda: scripted.unblocked,
        }
        return makers[word]()


def close(code: str, exchange: str = "x") -> errors.RabbitChxError:
    """Return the error of a close."""
    number = int(code[:3]) if code[0].isdigit() else 403
    return error_for(number, TEXTS[code].replace("'xc'", f"'{exchange}'"), where="amqp://broker")


def close_over(
    connection: scripted.ScriptedConnection, poison: str, code: str = "541", exchange: str = ""
) -> None:
    """Close over these rows, whose exchange is `x` and their body, without an answer for the rows before them; ack all other rows."""
    first = next((body for body in connection.bodies if body in poison), None)
    (scripted.ack() if first is None else scripted.lost(close(code, exchange or f"x{first}")))(connection)


def break_over(connection: scripted.ScriptedConnection, poison: str, *how: str) -> None:
    """Let the channel fail over this row, and lose the connection: by a close unless it is `silently`. Other rows have no confirm unless `acks`."""
    connection.fails_over = poison
    if poison in connection.bodies:
        scripted.lost(None if "silently" in how else close("541"))(connection)
    elif "acks" in how:
        scripted.ack()(connection)
