"""Topology files and definitions files with what is said of each, as stored in `tests/unit/topology/file/`.

``python tests/support/stored_files.py`` writes what is said again. Two comments of a topology file are read:
``# release: 3.8.9``, and ``# given: {"env": "dev"}`` with variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import Release
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import Imported, Topology

_FOLDER = Path(__file__).parents[1] / "unit/topology/file"
_CASE = re.compile(r"^(?!\n)(.+?\n)((?:-> [^\n]*\n)+)", re.DOTALL | re.MULTILINE)


def _read(name: str) -> dict[str, dict[str, str]]:
    """Return the texts of each section of a file, and what is said of each text."""
    parts = re.split(r"^## (.*)\n", (_FOLDER / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: dict(_CASE.findall(part)) for title, part in zip(parts[::2], parts[1::2], strict=True)}


def _all(sections: dict[str, dict[str, str]]) -> dict[str, str]:
    return {text: said for cases in sections.values() for text, said in cases.items()}


SECTIONS = _read("mistakes.txt")
STORED_FILES = _all(SECTIONS)
STORED_DEFINITIONS = _all(_read("definitions.txt"))


def judge_file(text: str) -> str:
    """Return what is said of a topology file: its mistakes, or what is odd about it."""
    release, given = (re.search(f"^# {name}: (.*)", text, re.MULTILINE) for name in ("release", "given"))
    number = Release(release[1]) if release else NEWEST_COMPARED
    try:
        topology = Topology.from_toml(text, release=number, variables=json.loads(given[1]) if given else None)
    except TopologyError as error:
        said = [line.strip() for line in str(error).splitlines()[1:]]
    else:
        said = [*topology.misspellings, *topology.ignored_arguments(number)] or ["no mistake"]
    return _listed(said)


def judge_definitions(text: str) -> str:
    """Return what is said of a definitions file: its mistakes, or what an import makes otherwise and what is left out."""
    try:
        imported = Imported.from_definitions(text)
    except TopologyError as error:
        return _listed(line.strip() for line in str(error).splitlines()[1:])
    left_out = (f"left out: {line}" for line in imported.left_out)
    return _listed([*map(str, imported.oddities), *left_out] or ["no mistake"])


def _listed(lines: Iterable[str]) -> str:
    return "".join(f"-> {line}\n" for line in lines)


if __name__ == "__main__":
    for name, cases, judge in (
        ("mistakes.txt", STORED_FILES, judge_file),
        ("definitions.txt", STORED_DEFINITIONS, judge_definitions),
    ):
        stored = (_FOLDER / name).read_text(encoding="utf-8")
        for text, said in cases.items():
            stored = stored.replace(f"\n{text}{said}", f"\n{text}{judge(text)}")
        (_FOLDER / name).write_text(stored, encoding="utf-8")
