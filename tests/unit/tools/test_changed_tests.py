"""The unit tests that `make quick` runs after a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_tests import changed_tests

ROOT = Path(__file__).resolve().parents[3]
ALWAYS = {"tests/docs/test_pages.py", "tests/unit/packaging"}
PRINTED = "tests/unit/cli/test_transcripts.py"
OF_SPARK = "tests/unit/spark_connector/options"


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (
            ["rabbit_chx/planning/plan.py", "rabbit_chx/topology/model.py"],
            ["tests/unit/planning", "tests/unit/topology", PRINTED],
        ),
        (["rabbit_chx/routing/arrays/keys.py"], ["tests/unit/routing", PRINTED]),
        (["rabbit_chx/publishing/options.py"], ["tests/unit/publishing", PRINTED, OF_SPARK]),
        (
            ["rabbit_chx/analysis/findings.py"],
            ["tests/unit/analysis", "tests/unit/checking", "tests/unit/cli", "tests/unit/tools"],
        ),
        (["spark_connector/columns.py"], ["tests/unit/spark_connector"]),
        (["tests/unit/cli/test_app.py"], ["tests/unit/cli/test_app.py"]),
        (["tests/unit/cli/test_app.py", "rabbit_chx/cli/app.py"], ["tests/unit/cli"]),
        (["tests/unit/cli/transcripts/plan.txt"], ["tests/unit/cli"]),
        (["tests/simulation/test_stream_seeds.py"], ["tests/simulation/test_stream_seeds.py"]),
        (["tests/unit/cli/test_that_was_deleted.py"], ["tests/unit/cli"]),
        (["tests/broker/test_declaration.py", "docs/spark/write.md", "README.md", "Makefile"], []),
    ],
)
def test_changed_files_have_the_tests_that_they_can_break(files: list[str], tests: list[str]) -> None:
    assert {*changed_tests(files)} == ALWAYS.union(tests)


def test_a_change_of_what_all_unit_tests_use_runs_all_of_them() -> None:
    assert changed_tests(["tests/unit/conftest.py"]) == ["tests/docs/test_pages.py", "tests/unit"]


def test_each_module_has_tests_that_exist() -> None:
    for folder in ("rabbit_chx", "spark_connector", "tools"):
        for module in (ROOT / folder).rglob("*.py"):
            tests = {*changed_tests([module.relative_to(ROOT).as_posix()])} - ALWAYS
            assert tests
            assert all((ROOT / test).exists() for test in tests)
