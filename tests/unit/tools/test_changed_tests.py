"""The unit tests that `make quick` runs after a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_tests import changed_tests

ROOT = Path(__file__).resolve().parents[3]
PAGES = "tests/docs/test_pages.py"


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (["rabbit_chx/topology/planning/plan.py", "rabbit_chx/topology/model.py"], ["tests/unit/topology"]),
        (["rabbit_chx/routing/arrays/keys.py"], ["tests/unit/routing"]),
        (["spark_connector/columns.py"], ["tests/unit/spark_connector"]),
        (["tests/unit/cli/test_app.py"], ["tests/unit/cli/test_app.py"]),
        (["tests/unit/cli/test_app.py", "rabbit_chx/cli/app.py"], ["tests/unit/cli"]),
        (["tests/unit/cli/transcripts/plan.txt"], ["tests/unit/cli"]),
        (["tests/unit/conftest.py"], ["tests/unit"]),
        (["tests/simulation/test_stream_seeds.py"], ["tests/simulation/test_stream_seeds.py"]),
        (["tests/unit/cli/test_that_was_deleted.py"], ["tests/unit/cli"]),
        (["tests/broker/test_declaration.py", "docs/spark.md", "README.md"], []),
        (["Makefile"], ["tests/unit/packaging"]),
    ],
)
def test_changed_files_have_the_tests_of_their_package(files: list[str], tests: list[str]) -> None:
    assert changed_tests(files) == [PAGES, *tests]


def test_each_module_has_tests_that_exist() -> None:
    for folder in ("rabbit_chx", "spark_connector", "tools"):
        for module in (ROOT / folder).rglob("*.py"):
            _, *tests = changed_tests([module.relative_to(ROOT).as_posix()])
            assert tests
            assert all((ROOT / test).exists() for test in tests)
