"""How long a wait may last: `progress_timeouts.txt` has the connection's bytes and answers, and the times of looks.

python tests/unit/publishing/test_limits_progress_timeout.py    # writes what this version says into the file
"""

from __future__ import annotations

from pathlib import Path

from scripted_delivery import A, ScriptedConnection, ack, blocked, unblocked
from stories import each_story, played, write_stories

from rabbit_chx.errors import BrokerTimeoutError
from rabbit_chx.publishing.options import Limits, ProgressTimeout

STORIES = Path(__file__).with_name("progress_timeouts.txt")


class Wait:
    """A wait for ten messages that are not answered, with these timeouts for confirms and for blocks."""

    def __init__(self, how: str) -> None:
        confirm_s, blocked_s = map(float, how.split())
        self.timeout = ProgressTimeout(Limits(confirm_timeout_s=confirm_s, blocked_timeout_s=blocked_s), 0)
        self.connect()

    def connect(self) -> None:
        self.connection = ScriptedConnection(A)
        self.connection.session.publish(b"wire", 10)

    def play(self, event: str) -> str:
        """Let something happen; or look, and return the seconds in which the broker blocked, or the error."""
        word, *numbers = event.split()
        try:
            if word == "look":
                return f"{self.timeout.check(self.connection, float(numbers[0])):g}"
            if word == "blocks":
                for now in range(361):
                    (blocked if now % 10 < int(numbers[0]) else unblocked)(self.connection)
                    self.timeout.check(self.connection, now)
        except BrokerTimeoutError as error:
            return f"{type(error).__name__}: {error}"
        self.happen(word, *map(int, numbers))
        return ""

    def happen(self, word: str, tag: int = 0) -> None:
        match word:
            case "ack":
                ack(tag)(self.connection)
            case "sent":
                self.connection.bytes_sent += 1
            case "taken":
                self.connection.bytes_under_way -= 1_000
            case "backlog":
                self.connection.backlog = True
            case "connection":
                self.connect()
            case _:
                {"blocked": blocked, "unblocked": unblocked}[word](self.connection)


@each_story(STORIES)
def test_a_wait_ends_without_progress(how: str, lines: list[str]) -> None:
    assert played(Wait(how).play, lines) == lines


if __name__ == "__main__":
    write_stories(STORIES, lambda how: Wait(how).play)
