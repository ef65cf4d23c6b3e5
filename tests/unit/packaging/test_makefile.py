"""The targets of the Makefile: few, described, and those that pages, workflows, comments and messages name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import ended

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
LONG_RUNS = re.findall(r"^long/([a-z-]+):", MAKEFILE, re.MULTILINE)
FOLDERS = (".ci", ".github", "bench", "docs", "examples", "rabbit_chx", "spark_connector", "tests", "tools")
#: In a code span, at the start of a line of a page, as a step of a workflow or of .ci/run, and at the end of a message.
NAMED = re.compile(
    r"(?:^|`|\brun:? )make ([a-z][^\s`\"]*)(?: WHAT=([^\s`\"]+))?|\bmake ([a-z-]+)\"", re.MULTILINE
)


def _named() -> set[tuple[str, str, str]]:
    """Each file with a target that it names, and its long run or ''."""
    files = [
        path for path in ROOT.iterdir() if path.suffix in {".md", ".toml", ".yml"} or path.name == "Makefile"
    ]
    for folder in FOLDERS:
        files += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in {".md", ".py", ".sh", ".yml", ""}
        ]
    return {
        (path.relative_to(ROOT).as_posix(), target or last, run)
        for path in files
        if path.is_file() and path.name != "CHANGELOG.md"  # it names targets of earlier versions
        for target, run, last in NAMED.findall(path.read_text(encoding="utf-8"))
    }


def test_each_target_and_long_run_that_is_named_exists() -> None:
    named = _named()
    assert {target for _, target, _ in named} > {"demo", "test", "check", "parity", "audit"}
    assert {run for _, _, run in named} >= set(LONG_RUNS)
    assert {
        (path, target, run)
        for path, target, run in named
        if target not in TARGETS or (target == "long" and run not in LONG_RUNS) or (target != "long" and run)
    } == set()


@pytest.mark.parametrize("what", [[], ["WHAT=unknown"], ["WHAT=fire unknown"]])
def test_an_unknown_long_run_fails_and_all_are_listed(what: list[str]) -> None:
    done = ended("make", "long", *what, cwd=ROOT)
    assert done.returncode == 2
    assert re.findall(r"^  ([a-z-]+) +\S", done.stderr, re.MULTILINE) == LONG_RUNS
