"""Topology files and definitions files with what is said of each, as stored in `tests/unit/topology/`.

``python tests/support/stored_files.py`` writes what is said again. Two comments of a topology file are read:
``# release: 3.10.8``, and ``# given: {"env": "dev"}`` with values of variables.
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

_FOLDER = Path(__file__).parents[1] / "unit/topology"
_CASE = re.compile(r"^(?!\n)(.+?\n)((?:-> [^\n]*\n)+)", re.DOTALL | re.MULTILINE)


def _sections(name: str) -> dict[str, str]:
    """Return the sections of a file by their titles."""
    parts = re.split(r"^## (.*)\n", (_FOLDER / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _cases(section: str) -> dict[str, str]:
    """Return the files of a section, and what is said of each."""
    cases = dict(_CASE.findall(section))
    results = len(re.findall(r"(?:^-> .*\n)+", section, re.MULTILINE))
    assert len(cases) == results, f"{len(cases)} different files have {results} results: one is written twice"
    return cases


#: Topology files of each section, and what is said of each.
SECTIONS = {title: _cases(section) for title, section in _sections("mistakes.txt").items()}
STORED_FILES = {text: said for cases in SECTIONS.values() for text, said in cases.items()}
STORED_DEFINITIONS = _cases("".join(_sections("definitions.txt").values()))
#: Two topology files that say the same, by what they are about.
EQUAL_FILES = {title: text.split("==\n") for title, text in _sections("equal_files.txt").items()}


def topology_of(text: str) -> Topology:
    """Return the topology of a file, with the release and the values that its comments give."""
    given = re.search("^# given: (.*)", text, re.MULTILINE)
    return Topology.from_toml(text, release=_release_of(text), values=json.loads(given[1]) if given else None)


def _release_of(text: str) -> Release:
    named = re.search("^# release: (.*)", text, re.MULTILINE)
    return Release(named[1]) if named else NEWEST_COMPARED


def judge_file(text: str) -> str:
    """Return what is said of a topology file: its mistakes, or what is odd about it."""
    try:
        topology = topology_of(text)
    except TopologyError as error:
        return _listed(line.strip() for line in str(error).splitlines()[1:])
    return _listed([*topology.misspellings, *topology.ignored_arguments(_release_of(text))] or ["no mistake"])


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
