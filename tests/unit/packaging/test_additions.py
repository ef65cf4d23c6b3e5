"""The table of CONTRIBUTING.md is complete: an addition takes the files of its row, and `make generated` does the rest."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from command_line import ended

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("rabbit_chx", "spark_connector", "tools")


#: What is added: the row of the table, a file, a text of it, and what takes its place.
ADDITIONS = (
    (
        "release",
        "rabbit_chx/routing/rules.py",
        "# fmt: on\n",
        'ADDED = Rule("added rule", "does something else", _since("4.3.0"), "added.erl")\n# fmt: on\n',
    ),
    (
        "release",
        "rabbit_chx/routing/rules.py",
        "RULES: tuple[Rule, ...] = (",
        "RULES: tuple[Rule, ...] = (ADDED,",
    ),
    (
        "finding",
        "rabbit_chx/analysis/finding_kinds.py",
        "CHECK_KINDS: Mapping[str, str] = {",
        'CHECK_KINDS: Mapping[str, str] = {"added-kind": "what was added",',
    ),
    (
        "option of Spark",
        "spark_connector/options/write_options.py",
        "    ignore_unknown_columns: bool",
        '    added_option: bool = option(FLAG, "what was added", default=False)\n    ignore_unknown_columns: bool',
    ),
    (
        "format of `--output`",
        "rabbit_chx/rendering/formats.py",
        '    "json": JsonOutput,\n',
        '    "json": JsonOutput,\n    "lines": JsonOutput,\n',
    ),
)
#: What the copy with all additions has and writes.
USES = """
import json
import tables
from rabbit_chx.analysis.finding_kinds import CHECK_KINDS
from rabbit_chx.cli.check import check_broker
from rabbit_chx.routing import Release
from rabbit_chx.routing.rules import ADDED
from rabbit_chx.topology import TopologyCheck
from rabbit_chx.checking.check_report import CheckReport
from spark_connector.options.write_options import WriteOptions

choices = {option.name: list(getattr(option.type, "choices", ())) for option in check_broker.params}
report = CheckReport("h:5672", {"/": TopologyCheck((), ("x",))}, (), 0.0).document()
print(json.dumps({
    "rule": [Release(version).follows(ADDED) for version in ("4.2.0", "4.3.0")],
    "ignored": "added-kind" in choices["ignored"],
    "counted": "added-kind" in {labels["kind"] for gauge in report.gauges for labels, _ in gauge.samples if "kind" in labels},
    "spark": WriteOptions.parse({"url": "amqp://h", "exchange": "x", "addedOption": "true"}).added_option,
    "output": "lines" in choices["output"],
    "generated": {
        "rule": "| added rule | from 4.3.0 | does something else |" in tables.rules(),
        "finding": "| `added-kind` | what was added |" in tables.finding_kinds(CHECK_KINDS),
        "option": "- `addedOption` (boolean, default `false`): what was added" in tables.options(),
    },
}))
"""


@pytest.mark.extended
def test_an_addition_is_where_it_is_used_and_on_the_generated_pages(tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for _, file, old, new in ADDITIONS:
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, (file, old)
        (tmp_path / file).write_text(text.replace(old, new), encoding="utf-8")
    packages = f"{tmp_path}{os.pathsep}{tmp_path / 'tools'}"
    done = ended(sys.executable, "-c", USES, cwd=tmp_path, PYTHONPATH=packages)
    assert done.returncode == 0, done.stderr
    added = json.loads(done.stdout)
    assert added["rule"] == [False, True]
    assert [added[use] for use in ("ignored", "counted", "spark", "output")] == [True] * 4
    assert set(added["generated"].values()) == {True}


@pytest.mark.parametrize(("row", "file"), [addition[:2] for addition in ADDITIONS])
def test_the_table_names_the_file(row: str, file: str) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {re.escape(row)} \|.*", table, re.MULTILINE)
    assert f"({file})" in line
