"""A program that forks while a client is open. The child tries to use it, closes it and ends; then the parent uses it.

Its input is a line of JSON: the kind of the client, the URL, and its other arguments. It prints what each process came to.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import rabbit_chx
from rabbit_chx.errors import InputError

_PUBLISH: tuple[Callable[[Any], object], Callable[[Any], object]] = (
    lambda publisher: publisher.publish_many(["k"], ["before the fork"]),
    lambda publisher: publisher.publish_many(["k"], ["after the fork"]).reconnects,
)
#: What a client does first, and then in each process.
_USES: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "Publisher": _PUBLISH,
    "StreamPublisher": _PUBLISH,
    "StreamReader": (next, lambda reader: [*reader] and reader.rows_returned),
    "Broker": (
        lambda broker: broker.open(),
        lambda broker: len(broker.declare("declared", {f"q{os.getpid()}": 1}).bound),
    ),
}


def tell(use: Callable[[], object]) -> None:
    """Print the result or the error."""
    try:
        print(use(), flush=True)  # noqa: T201  # the test reads it
    except InputError as error:
        print("refused:", error, flush=True)  # noqa: T201


def main() -> None:
    """Be the program."""
    kind, url, arguments = json.loads(sys.stdin.readline())
    client: Any = getattr(rabbit_chx, kind)(url, **arguments)
    if kind not in _USES:
        asyncio.run(fork_group(client))
        return
    begin, use = _USES[kind]
    begin(client)
    child = wait_for_child()
    tell(partial(use, client))
    client.close()
    if not child and not kind.endswith("Publisher"):
        os._exit(0)  # without the ends of the parent's objects


def wait_for_child() -> int:
    """Fork; the parent goes on when the child has ended. Return the child in the parent, and 0 in the child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child


async def fork_group(group: Any) -> None:
    """Run a group in a child, and then here, until it is stopped at once."""

    async def handle(*_: object) -> None:
        """Handle nothing."""

    async with group:
        child = wait_for_child()
        group.stop()
        try:
            await group.run(handle)
            print("ran", flush=True)  # noqa: T201
        except InputError as error:
            print("refused:", error, flush=True)  # noqa: T201
        if not child:
            await group.__aexit__(None, None, None)
            os._exit(0)


if __name__ == "__main__":
    main()
