"""Names and sizes: what a file list tells is true, and nothing in a package is called as something else is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = ("rabbit_chx", "spark_connector")
MODULES = [path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))]
PACKAGES = [
    path
    for package in OURS
    for path in sorted((ROOT / package).iterdir())
    if (path / "__init__.py").is_file()
]
FOLDERS = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq", "tests", "examples", "bench", "tools")
UNIT = ROOT / "tests" / "unit"
#: Unit modules without a source of their name, and what they are about.
OVER_SEVERAL = {
    "analysis/test_slots.py": "tables of slots in an exchange and in samples of keys",
    "broker/test_frame_secrets.py": "local variables of publishers and of the broker",
    "cli/test_secrets.py": "what is said of answers, programs, variables and unexpected errors",
    "cli/test_transcripts.py": "what all commands print",
    "erlang/test_erlang_vectors.py": "hashes and random numbers of a real Erlang VM",
    "routing/test_recorded_routes.py": "routes of real brokers: all exchanges and releases",
    "topology/test_rule_laws.py": "rules of releases, which planning and checking know too",
    "topology/test_topology_life.py": "plan, apply, crash, check, repair",
    "checking/test_stored_checks.py": "all findings of a check",
    "planning/test_stored_plans.py": "all texts of a plan",
}
#: Sources without a unit module of their name, and where their tests are.
TESTED_IN = {
    "rabbit_chx/analysis/compare_report.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/analysis/route_report.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/analysis/observations.py": "unit/broker/test_scratch_reports.py",
    "rabbit_chx/broker/message_carrier.py": "broker/test_message_carrier.py",
    "rabbit_chx/cli/applying.py": "unit/cli/test_apply.py",
    "rabbit_chx/cli/check.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/cli/record.py": "broker/test_observed_rings.py",
    "rabbit_chx/cli/ring_argument.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/cli/ring_options.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/cli/route.py": "unit/cli/test_transcripts.py",
    "rabbit_chx/routing/arrays/nested.py": "unit/routing/test_nested_map.py",
    "rabbit_chx/streams/messages.py": "unit/streams/test_rows.py",
    "rabbit_chx/checking/check_queues.py": "unit/checking/test_stored_checks.py",
    "rabbit_chx/checking/check_records.py": "unit/broker/test_recording.py",
    "rabbit_chx/checking/checked_exchange.py": "unit/checking/test_stored_checks.py",
    "rabbit_chx/checking/difference_findings.py": "unit/checking/test_stored_checks.py",
    "rabbit_chx/planning/resuming.py": "unit/broker/test_recording.py",
    "rabbit_chx/table_files.py": "unit/cli/test_samples.py",
    "rabbit_chx/ui/pages.py": "unit/ui/test_app.py",
    "spark_connector/reading/sources.py": "unit/spark_connector/reading/test_micro_batches.py",
}
#: A source whose functions have fewer statements is tested by the tests of the sources that call it.
FEW_STATEMENTS = 35


def more_than_once(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Return the names that several files have."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, path in named:
        files[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def public_types(path: Path) -> Iterable[str]:
    """Yield the names of a module's public classes and type aliases."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            name = ast.unparse(node.target)
        else:
            continue
        if not name.startswith("_"):
            yield name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_two_modules_classes_or_type_aliases_of_a_package_have_one_name(package: Path) -> None:
    modules = [path for path in MODULES if path.is_relative_to(package)]
    assert more_than_once((path.stem, path) for path in modules if path.name != "__init__.py") == {}
    assert more_than_once((name, path) for path in modules for name in public_types(path)) == {}


@pytest.mark.parametrize("type_", ["x-consistent-hash", "x-modulus-hash"])
def test_the_type_of_an_exchange_that_hashes_is_one_constant(type_: str) -> None:
    """In code. The rules of routing have it as a heading, and a `Literal` needs the text."""
    seen: dict[str, int] = defaultdict(int)
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        of_types = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == type_ and id(node) not in of_types:
                seen[str(path.relative_to(ROOT))] += 1
    seen.pop("rabbit_chx/routing/rules.py", None)
    assert seen == {"rabbit_chx/amqp/exchange_types.py": 1}


def test_no_module_imports_what_another_keeps_to_itself() -> None:
    """A name is a module's own if it begins with an underscore; packages say in ``__all__`` what users may import."""
    private = {
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS)
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__version__"
    }
    assert private == set()


def test_packages_alone_say_what_they_export() -> None:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            assert path.name == "__init__.py" or "\n__all__" not in path.read_text(encoding="utf-8"), path


def source_of(test: Path) -> Path | None:
    """Return the source that a unit module is called after: of its room, with the longest name; None without one."""
    room = test.parent.relative_to(UNIT)
    folder = {"spark_connector": ROOT, "tools": ROOT, "support": ROOT / "tests"}.get(
        room.parts[0] if room.parts else "", ROOT / "rabbit_chx"
    )
    sources = [
        path for path in (folder / room).glob("*.py") if f"{test.stem}_".startswith(f"test_{path.stem}_")
    ]
    return max(sources, key=lambda path: len(path.stem), default=None)


def count_statements(source: Path) -> int:
    """Return the number of statements in the functions of a source."""
    return sum(
        isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for function in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    )


#: The unit modules, but those of `packaging`, which are about the repository, with their sources.
SOURCES = {
    path.relative_to(UNIT).as_posix(): source_of(path)
    for path in UNIT.rglob("test_*.py")
    if path.parent.name != "packaging"
}


def test_a_unit_module_is_called_after_a_source_of_its_room_with_a_subject_behind() -> None:
    """`unit/streams/test_reader_filters.py` tests `streams/reader.py`."""
    assert {test for test, source in SOURCES.items() if source is None} == set(OVER_SEVERAL)


def test_a_source_with_logic_has_a_unit_module_of_its_name() -> None:
    untested = {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        if path not in SOURCES.values()
        if not path.name.startswith("__")
        if count_statements(path) >= FEW_STATEMENTS
    }
    assert untested == set(TESTED_IN)
    assert [test for test in TESTED_IN.values() if not (ROOT / "tests" / test).is_file()] == []
