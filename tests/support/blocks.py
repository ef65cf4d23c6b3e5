"""The documents, and the blocks of code in them, run as they are written but for addresses."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: The pages of docs/, as paths from the root.
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))


def page(path: str) -> str:
    """Return the text of a document.

    Args:
        path: from the root of the repository, such as ``docs/cli.md``.
    """
    return (ROOT / path).read_text(encoding="utf-8")


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Return the text with each word in place of what the page says; the first word is replaced first."""
    for said, here in words.items():
        text = text.replace(said, here)
    return text


def python_blocks(path: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page(path), re.DOTALL)


def run_blocks(
    path: str,
    words: Mapping[str, str],
    names: dict[str, Any] | None = None,
    *,
    after: Callable[[str], object] | None = None,
) -> None:
    """Run all Python blocks of a page, one after the other, in one namespace.

    Args:
        path: the page, from the root of the repository.
        words: what takes the place of what the page says, such as an address.
        names: the namespace.
        after: called with each block, as the page has it, once it has run.
    """
    names = {} if names is None else names
    for block in python_blocks(path):
        exec(compile(replaced(block, words), path, "exec"), names)  # noqa: S102  # that is what is tested
        if after is not None:
            after(block)


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


def run_command(
    command: str, timeout_s: float, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of a page in a shell that finds `rabbit-chx`.

    Args:
        command: as the page has it.
        timeout_s: how many seconds it may take.
        cwd: the folder to run it in.
        environment: variables besides our own.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
