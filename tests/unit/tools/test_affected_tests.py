"""The tests that `make quick` runs, for changes of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from affected_tests import affected_tests, changed_files

CLI, TOPOLOGY, PACKAGING = "tests/unit/cli", "tests/unit/topology", "tests/unit/packaging"


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        ("rabbit_chx/cli/keys.py", f"{CLI}/test_keys.py"),
        ("rabbit_chx/routing/ring.py", "tests/unit/analysis/test_matrix.py"),
        ("rabbit_chx/rendering/output.py", "tests/unit/rendering/test_markdown.py"),
        ("rabbit_chx/topology/check.py", f"{TOPOLOGY}/test_stored_checks.py"),
        ("tests/support/modelled_commands.py", f"{CLI}/test_keys.py"),
        ("tests/unit/cli/conftest.py", f"{CLI}/test_keys.py"),
        ("tests/unit/cli/transcripts/files/gone.json", f"{CLI}/test_transcripts.py"),
        ("tests/unit/topology/plans/01-nothing-to-change.txt", f"{TOPOLOGY}/test_stored_plans.py"),
        ("tests/vectors/phash2.json", "tests/unit/erlang/test_erlang_vectors.py"),
        ("docs/api.md", f"{PACKAGING}/test_guarantees.py"),
        ("pyproject.toml", f"{PACKAGING}/test_installed.py"),
        ("tools/tables.py", f"{PACKAGING}/test_guarantees.py"),
    ],
)
def test_a_change_affects_tests(changed: str, affected: str) -> None:
    tests, _ = affected_tests([changed], most=1_000)
    assert affected in tests
    assert all(Path(path).name.startswith("test_") for path in tests), "pytest collects nothing else"


def test_tests_of_brokers_affect_no_unit_test() -> None:
    assert affected_tests(["tests/broker/test_apply.py"]) == ([], 0)


def test_too_many_tests_are_a_bounded_sample_with_those_of_the_change_first() -> None:
    changed = ["rabbit_chx/errors.py", "rabbit_chx/erlang/terms.py", f"{TOPOLOGY}/test_ranges.py"]
    tests, count = affected_tests(changed, most=20)
    assert len(tests) == 20 < count
    assert {f"{TOPOLOGY}/test_ranges.py", "tests/unit/erlang/test_terms.py"} <= set(tests)
    assert len({Path(path).parent for path in tests}) > 5


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a branch ``main``, and one that deletes, renames, changes and adds a file."""
    for name in ("deleted", "renamed", "edited", "kept"):
        (tmp_path / name).write_text(f"the text of {name}\n" * 20)
    _git(tmp_path, "init", "--initial-branch", "main")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--message", "all")
    _git(tmp_path, "checkout", "-b", "change")
    (tmp_path / "deleted").unlink()
    (tmp_path / "renamed").rename(tmp_path / "new-name")
    _git(tmp_path, "add", "--all")
    _git(tmp_path, "commit", "--message", "some")
    (tmp_path / "edited").write_text("another text")
    (tmp_path / "added").touch()
    return tmp_path


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


CHANGED = ["added", "deleted", "edited", "new-name", "renamed"]


def test_a_change_is_committed_or_not(repository: Path) -> None:
    assert changed_files(repository) == CHANGED


def test_without_a_local_main_the_remote_one_counts_and_without_both_the_error_has_the_remedy(
    repository: Path,
) -> None:
    _git(repository, "update-ref", "refs/remotes/origin/main", "main")
    _git(repository, "branch", "--delete", "--force", "main")
    assert changed_files(repository) == CHANGED
    _git(repository, "update-ref", "-d", "refs/remotes/origin/main")
    with pytest.raises(SystemExit, match="git fetch origin main:main"):
        changed_files(repository)
