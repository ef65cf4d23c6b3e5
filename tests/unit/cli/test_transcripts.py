"""Commands and what they print, as text: `transcripts/*.txt`, and `transcripts/modelled/*.txt` on a broker of values.

A line `$ ` is a command, `! ` is a line of stderr, a number in brackets at the end is an exit code other than 0, and
all else is stdout. Before a command stands what it finds in its environment, or what `printf` writes to its stdin. The
commands of a file run in a copy of `transcripts/files`, with no broker named but the model.

A line `# ` prepares the model (`holds FILE`, `refuses QUEUE`, `messages QUEUE NUMBER`) or the next command (`types
TEXT`: stdin is a terminal; `sees`: stderr is one). A line `= ` is what the model has after a command: queues, rings,
messages. `not asked` means that the command did not connect.

`python tests/unit/cli/test_transcripts.py --update [NAME...]` writes the files anew: read the difference.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from modelled_commands import ModelledCommands, Stream
from slot_files import live_of

from rabbit_chx import Topology
from rabbit_chx.cli import main

FOLDER = Path(__file__).resolve().with_name("transcripts")
FILES = sorted([*FOLDER.glob("*.txt"), *FOLDER.glob("modelled/*.txt")])
NAMES_A_BROKER = ("AMQP_URL", "RABBIT_CHX_")
MODEL = {"AMQP_URL": "amqp://model", "RABBIT_CHX_MANAGEMENT_URL": "http://model", "RABBIT_CHX_RING_VIA": ""}
LINE = re.compile(
    r"^(?:# (holds|messages|refuses|sees|types) ?(.*)|\$ (?:printf '(.*)' \| |(\w+)=(\S+) )?rabbit-chx (.*))$",
    re.MULTILINE,
)
#: What a machine needs to bind again.
GAP = re.compile(r"(?<=bucket for at most )\S+ m?s")


class Session:
    """Runs the lines of a transcript."""

    def __init__(self, patch: pytest.MonkeyPatch, model: ModelledCommands | None) -> None:
        self._patch, self._model = patch, model
        self._typed: str | None = None
        self._sees = False

    def line(self, line: re.Match[str]) -> str:
        """Run a line, and return it with what it prints."""
        word, rest, piped, name, value, command = line.groups()
        if word:
            self._prepare(word, rest)
            return f"{line[0]}\n"
        piped_bytes = codecs.escape_decode((piped or "").encode())[0]
        typed, self._typed, sees, self._sees = self._typed, None, self._sees, False
        stdin = io.TextIOWrapper(io.BytesIO(piped_bytes)) if typed is None else Stream(typed, terminal=True)
        out, errors = io.StringIO(), Stream(terminal=sees)
        with (
            self._patch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
        ):
            patch.setattr("sys.stdin", stdin)
            if name:
                patch.setenv(name, value)
            code = main(shlex.split(command))
        said = "".join(f"! {line}\n" for line in errors.getvalue().splitlines())
        ending = f"[{code}]\n" if code else ""
        return f"{line[0]}\n{GAP.sub('0 ms', out.getvalue())}{said}{ending}{self._state()}"

    def _prepare(self, word: str, rest: str) -> None:
        if word == "types":
            self._typed = f"{rest}\n"
        elif word == "sees":
            self._sees = True
        elif self._model is None:
            raise ValueError(f"# {word} prepares a model, which this transcript does not have")
        elif word == "holds":
            self._model.holds(live_of(Topology.from_toml(Path(rest).read_text(encoding="utf-8"))))
        elif word == "refuses":
            self._model.refuses = set(rest.split())
        else:
            queue, number = rest.split()
            self._model.messages = {queue: int(number)}

    def _state(self) -> str:
        if self._model is None:
            return ""
        live, opened, self._model.opened = self._model.model.topology(), self._model.opened, 0
        rings = (f"{name} {' '.join(map(str, ring.buckets))}" for name, ring in live.rings.items())
        messages = (f"{number} messages in {queue}" for queue, number in self._model.messages.items())
        has = ["queues " + " ".join(queue.name for queue in live.queues), *rings, *messages]
        return f"= {'; '.join(has if opened else [*has, 'not asked'])}\n"


def transcript_of(file: Path) -> str:
    """Run the commands of a transcript, and return it with what they print."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        shutil.copytree(FOLDER / "files", directory, dirs_exist_ok=True)
        patch.chdir(directory)
        for name in [name for name in os.environ if name.startswith(NAMES_A_BROKER)]:
            patch.delenv(name)
        patch.setenv("COLUMNS", "100")
        patch.setattr("rabbit_chx.rendering.progress._FIRST_LINE_S", 3_600)
        patch.setattr("rabbit_chx.rendering.progress._BAR_EVERY_S", 3_600)
        model = None
        if file.parent != FOLDER:
            model = ModelledCommands(Path("topology.toml"), patch)
            for name, value in MODEL.items():
                patch.setenv(name, value)
        session = Session(patch, model)
        return "\n".join(map(session.line, LINE.finditer(file.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_commands_print_the_output_of_the_transcript(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert transcript_of(file) == text


if __name__ == "__main__" and sys.argv[1:2] == ["--update"]:
    for file in FILES:
        if not sys.argv[2:] or file.stem in sys.argv[2:]:
            file.write_text(transcript_of(file), encoding="utf-8")
