"""Commands and what they print, as text: `transcripts/*.txt`.

A line `$ ` is a command, `! ` is a line of stderr, a number in brackets at the end is an exit code other than 0, and all else is
stdout. The commands of a file run in a copy of `transcripts/files`, with no broker named. `python tests/unit/cli/test_transcripts.py --update` writes
the files anew: read the difference.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbit_chx.cli import main

FOLDER = Path(__file__).resolve().with_name("transcripts")
FILES = sorted(FOLDER.glob("*.txt"))
NAMES_A_BROKER = ("AMQP_URL", "RABBIT_CHX_")


@contextlib.contextmanager
def apart(directory: str) -> Iterator[None]:
    """Run a block in a directory, with no broker in the environment."""
    environment, before = dict(os.environ), Path.cwd()
    for name in environment:
        if name.startswith(NAMES_A_BROKER):
            del os.environ[name]
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def transcript_of(text: str) -> str:
    """Run the commands of a transcript, and return it with what they print."""
    with tempfile.TemporaryDirectory() as directory, apart(directory):
        shutil.copytree(FOLDER / "files", directory, dirs_exist_ok=True)
        runs = map(ran, re.findall(r"^\$ rabbit-chx (.*)$", text, re.MULTILINE))
        return "\n".join(runs)


def ran(command: str) -> str:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main(shlex.split(command))
    said = "".join(f"! {line}\n" for line in errors.getvalue().splitlines())
    ending = f"[{code}]\n" if code else ""
    return f"$ rabbit-chx {command}\n{out.getvalue()}{said}{ending}"


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_commands_print_the_output_of_the_transcript(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert transcript_of(text) == text


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    for file in FILES:
        file.write_text(transcript_of(file.read_text(encoding="utf-8")), encoding="utf-8")
