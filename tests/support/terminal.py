"""A page that is typed from top to bottom into one terminal, as it is written but for addresses."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from blocks import check_output, console_examples, page, replaced

_MARK = "--- typed: "


def type_page(path: str, folder: Path, words: Mapping[str, str], **environment: str) -> None:
    """Type the commands of a page, and compare what they print. Each has to succeed.

    A block of another language is a file, and its first line is a comment with the name of the file. What is in a block `sh` is not typed.

    Args:
        path: the page, from the root of the repository.
        folder: where the terminal begins.
        words: what takes the place of what the page says, such as an address.
        environment: variables besides our own.
    """
    with Terminal(folder, environment) as terminal:
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page(path), re.DOTALL | re.MULTILINE):
            if language == "console":
                for command, shown in console_examples(f"```console\n{block}```\n"):
                    printed, code = terminal.types(replaced(command, words))
                    assert code == 0, f"{command}\n{printed}{terminal.stderr}"
                    check_output(printed, shown)
            elif language != "sh":
                name, _, text = block.removeprefix("# ").partition("\n")
                (folder / name).write_text(text)


class Terminal:
    """A shell whose variables and jobs stay, and that finds `rabbit-chx` and `python`. What runs in it goes with it.

    Args:
        folder: where it begins.
        environment: variables besides our own.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._said = (folder / "stderr.txt").open("w+b")
        self._shell = subprocess.Popen(
            ["/bin/bash"],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._shell, self._said:
            os.killpg(self._shell.pid, signal.SIGKILL)

    def types(self, command: str) -> tuple[str, int]:
        """Type a command, and return what it prints and its exit code."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} < /dev/null\necho {shlex.quote(_MARK)}$?\n".encode())
        self._shell.stdin.flush()
        lines = []
        for line in map(bytes.decode, self._shell.stdout):
            printed, mark, code = line.partition(_MARK)
            lines.append(printed)
            if mark:
                return "".join(lines), int(code)
        raise AssertionError(f"the shell ended in {command}")

    @property
    def stderr(self) -> str:
        """What was said besides the results."""
        return Path(self._said.name).read_text()
