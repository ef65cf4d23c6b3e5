"""What refused declarations tell about a queue, and what is said of it: `queue_checks.txt`. The refusals are those of real brokers, 3.10.8 to 4.3.6.

python tests/unit/consuming/test_queue_checks.py    # writes what this version says into the file
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stories import each_story, played, write_stories

from rabbit_chx.amqp.frames import error_for
from rabbit_chx.consuming.queue_checks import REQUIRED_ARGUMENTS, check_queues, learn_argument, queue_warnings
from rabbit_chx.consuming.settings import FailurePolicy, GroupMember
from rabbit_chx.errors import MismatchError

STORIES = Path(__file__).with_name("queue_checks.txt")


class Group:
    """A member with these options, at a broker of this release.

    Attributes:
        queues: the arguments of its queues.
        learned: what refused declarations have told.
    """

    def __init__(self, how: str) -> None:
        release, *options = how.split()
        given = dict(option.split("=") for option in options)
        failures = FailurePolicy(on_failure=given.get("on_failure", "stop"))  # type: ignore[arg-type]
        self.member = GroupMember("a", concurrency=int(given.get("concurrency", 1)), failures=failures)
        self.release = tuple(map(int, release.split(".")))
        self.queues: dict[str, Any] = {}
        self.learned: dict[str, Any] | None = REQUIRED_ARGUMENTS

    def play(self, event: str) -> str:
        """Add a queue, take a refusal, or return what is said of the queues."""
        word, _, rest = event.partition(" ")
        try:
            match word:
                case "queue":
                    name, _, arguments = rest.partition(" ")
                    self.queues[name] = (
                        None
                        if arguments == "unknown"
                        else {**REQUIRED_ARGUMENTS, **json.loads(arguments or "{}")}
                    )
                case "refused":
                    error = error_for(406, f"PRECONDITION_FAILED - {rest}", where="amqp://localhost")
                    self.learned = learn_argument("q", self.learned or {}, str(error))
                    return json.dumps(self.learned)
                case "check":
                    check_queues(self.queues, self.release)
                case "warnings":
                    return " | ".join(queue_warnings(self.queues, self.release, self.member))
        except MismatchError as error:
            return f"MismatchError: {error}"
        return ""


@each_story(STORIES)
def test_what_is_said_of_the_queues_of_a_group(how: str, lines: list[str]) -> None:
    assert played(Group(how).play, lines) == lines


if __name__ == "__main__":
    write_stories(STORIES, lambda how: Group(how).play)
