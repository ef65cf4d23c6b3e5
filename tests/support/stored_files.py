"""Topology files with what is said of each, as stored in `tests/unit/topology/file/mistakes.txt`.

``python tests/support/stored_files.py`` writes what is said again. Two comments are read: ``# release: 3.8.9``, and
``# given: {"env": "dev"}`` with variables.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import Release
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import Topology

_STORED = Path(__file__).parents[1] / "unit/topology/file/mistakes.txt"
_CASE = re.compile(r"^(?!\n)(.+?\n)((?:-> [^\n]*\n)+)", re.DOTALL | re.MULTILINE)
_PARTS = re.split(r"^## (.*)\n", _STORED.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
#: The files of each section, and what is said of each.
SECTIONS: dict[str, dict[str, str]] = {
    title: dict(_CASE.findall(cases)) for title, cases in zip(_PARTS[::2], _PARTS[1::2], strict=True)
}
STORED_FILES = {text: said for cases in SECTIONS.values() for text, said in cases.items()}


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
    return "".join(f"-> {line}\n" for line in said)


if __name__ == "__main__":
    stored = _STORED.read_text(encoding="utf-8")
    for text, said in STORED_FILES.items():
        stored = stored.replace(f"\n{text}{said}", f"\n{text}{judge_file(text)}")
    _STORED.write_text(stored, encoding="utf-8")
