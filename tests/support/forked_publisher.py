"""A program that forks while a publisher is open. The child tries to publish, closes the publisher, and ends as Python does.

Its input is a line of JSON: the kind of the publisher, the URL, and its other arguments. It prints what each process came to.
"""

from __future__ import annotations

import json
import os
import sys

import rabbit_chx
from rabbit_chx.errors import InputError


def main() -> None:
    """Be the program."""
    kind, url, arguments = json.loads(sys.stdin.readline())
    publisher = getattr(rabbit_chx, kind)(url, **arguments)
    publisher.publish_many(["k"], ["before the fork"])
    child = os.fork()
    if not child:
        try:
            publisher.publish_many(["k"], ["from the child"])
        except InputError as error:
            print(error, flush=True)  # noqa: T201  # the test reads it
        publisher.close()
        sys.exit()
    os.waitpid(child, 0)
    publisher.publish_many(["k"], ["after the fork"])
    print("reconnects:", publisher.publish_many([], []).reconnects, flush=True)  # noqa: T201
    publisher.close()


if __name__ == "__main__":
    main()
