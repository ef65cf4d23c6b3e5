"""Print the unit tests for `make quick`: those of the packages whose files differ from the last commit.

If no file differs, they are those of the files that the last commit changed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_UNIT = "tests/unit"
_WITHOUT_BROKER = ("unit", "models", "fuzz", "simulation")
#: Links, words, messages, names and imports, which a change of any file may break.
_ALWAYS = ("tests/docs/test_pages.py", f"{_UNIT}/packaging")
#: What commands print of any package.
_PRINTED = f"{_UNIT}/cli/test_transcripts.py"
#: Spark has the options of the publishers under their names and with their words.
_OF_SPARK = f"{_UNIT}/spark_connector/options"


def changed_tests(files: Iterable[str]) -> list[str]:
    """Return the files and folders of the tests of changed files, as paths in the repository."""
    found = {test for file in files for test in _tests_of(Path(file))}
    found.update(_ALWAYS)
    return sorted(test for test in found if not {*map(str, Path(test).parents)} & found)


def _tests_of(file: Path) -> Iterator[str]:
    top, *inner = file.parts
    if top == "tests" and inner[0] in _WITHOUT_BROKER:
        is_test = file.name.startswith("test_") and (_ROOT / file).exists()
        yield str(
            file if is_test else Path(*file.parts[:-1][:3])
        )  # else a fixture, or what a test compares with
    elif top == "rabbit_chx" and len(inner) == 1:
        yield from (str(test.relative_to(_ROOT)) for test in (_ROOT / _UNIT).glob("test_*.py"))
        yield from (_PRINTED, _OF_SPARK)
    elif top == "rabbit_chx":
        yield from (f"{_UNIT}/{inner[0]}", _PRINTED)
        if inner[0] in ("publishing", "streams"):
            yield _OF_SPARK
        if inner[-1] in ("rules.py", "release.py"):  # each rule has a law
            yield f"{_UNIT}/topology/test_rule_laws.py"
        if inner[-1] == "findings.py":  # for commands, metrics, schemas and checks
            yield from (f"{_UNIT}/cli", f"{_UNIT}/tools", f"{_UNIT}/checking")
    elif top in ("spark_connector", "tools"):
        yield f"{_UNIT}/{top}"


def _changed_files() -> list[str]:
    unsaved = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return unsaved or _git("diff", "--name-only", "HEAD~1", "HEAD")


def _git(*arguments: str) -> list[str]:
    answer = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write(" ".join(changed_tests(_changed_files())))
