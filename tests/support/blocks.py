"""The documents, and the blocks of code in them, run as they are written but for addresses."""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx.cli import main

ROOT = Path(__file__).resolve().parents[2]
#: The pages of docs/ for users, as paths from the root; those of the commands are below.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.glob("docs/**/*.md")
    if path.parent.name not in {"commands", "contributing"}
)
#: The pages of the commands.
#: In the order in which their examples are run.
COMMAND_PAGES = [
    f"docs/reference/commands/{name}.md" for name in ("README", "predict", "look", "repair", "change")
]

#: What a shell takes as it is, and what only a shell understands.
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_FOR_A_SHELL = re.compile(r"[^\w\s=.,:/@%+-]")


def page(path: str) -> str:
    """Return the text of a document.

    Args:
        path: from the root of the repository, such as ``docs/operate/slots.md``.
    """
    return (ROOT / path).read_text(encoding="utf-8")


def example(name: str) -> Any:
    """Import a program of examples/."""
    if str(ROOT / "examples") not in sys.path:
        sys.path.insert(0, str(ROOT / "examples"))
    return import_module(name)


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Return the text with each word in place of what the page says; the first word is replaced first."""
    for said, here in words.items():
        text = text.replace(said, here)
    return text


def python_blocks(path: str) -> list[str]:
    """Return the Python blocks of a page, each with the set-up above it, which the page has in a folded `<details>`.

    A block that names its file in the first line is complete.
    """
    found, setup = [], ""
    for folded, block in re.findall(r"(<details>[^`]*)?```python\n(.*?)```", page(path), re.DOTALL):
        if folded:
            setup = f"{block}\n"
        else:
            found.append(block if re.match(r"# \w+\.py\n", block) else setup + block)
    return found


def run_doctest(path: str) -> None:
    """Run the doctest blocks of a page; there has to be one."""
    text = page(path).replace("\n```\n", "\n")  # a fence would be taken for output
    examples = doctest.DocTestParser().get_doctest(text, {}, path, None, 0)
    assert examples.examples
    assert doctest.DocTestRunner().run(examples).failed == 0


def console_examples(text: str, fence: str = "console") -> list[tuple[str, str]]:
    """Return the commands in the blocks of a fence, and what each prints; a command goes on behind a backslash."""
    return [
        example
        for block in re.findall(rf"^```{fence}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for example in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def check_output(printed: str, shown: str) -> None:
    """All is shown, or some lines in their order, where the first is `...`; nothing is shown of what one need not read."""
    if shown and not shown.startswith("...\n"):
        assert printed == shown
    lines = iter(printed.splitlines())
    missing = [line for line in shown.splitlines() if line != "..." and line not in lines]
    assert missing == [], printed


def run_command(
    command: str, timeout_s: float, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of a page in a shell that finds `rabbit-chx`. One that it begins with runs in this process, which is quicker.

    Args:
        command: as the page has it.
        timeout_s: how many seconds it may take in a shell.
        cwd: the folder to run it in.
        environment: variables besides our own.
    """
    first, pipe, rest = command.replace("\\\n", "").partition(" | ")
    if not first.startswith("rabbit-chx ") or _FOR_A_SHELL.search(_QUOTED.sub("", first)):
        return _run_in_shell(command, timeout_s, cwd, environment)
    done = _run_here(shlex.split(first), cwd, environment)
    if not pipe:
        return done
    then = _run_in_shell(rest, timeout_s, cwd, environment, done.stdout)
    return subprocess.CompletedProcess(command, then.returncode, then.stdout, done.stderr + then.stderr)


def _run_in_shell(
    command: str, timeout_s: float, cwd: Path | None, environment: Mapping[str, str], said: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", **environment},
        input=said,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def _run_here(
    words: list[str], cwd: Path | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    said, errors = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in (said, errors))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd or Path.cwd())
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        for name, text in environment.items():
            patch.setenv(name, text)
        code = main(words[1:])
    return subprocess.CompletedProcess(words, code, said.getvalue(), errors.getvalue())
