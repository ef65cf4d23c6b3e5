"""The release tool: its checks and texts, and with ``-m extended`` a whole release of a clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from installed_wheels import installed_wheels
from release import ReleaseError, check_source, first_example, pack, release_notes

from rabbit_chx import __version__

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = """# Changelog

## Unreleased

## 0.2.0 - 2026-11-24

### Added

- `verify`: see [its page](docs/reference/commands/verify.md) and [SemVer](https://semver.org/).

## 0.1.0 - 2026-01-02

- First.
"""
README = """# Title

```console
$ python3 -m venv venv && venv/bin/pip install --quiet '.[aio,cli]'
$ venv/bin/rabbit-chx compare
moved   1%
```

```console
$ something else
```
"""


@pytest.mark.parametrize(
    ("tags", "changes", "says"),
    [
        *(
            (tags, [], r"HEAD has no tag v0\.2\.0, .*: git tag --annotate v0\.2\.0")
            for tags in ([], ["v0.1.0"], ["0.2.0"], ["v0.2.0rc1"])
        ),
        (["v0.2.0"], [" M README.md"], "M README.md"),
        (["v0.2.0"], ["?? new.py"], r"\?\? new.py"),
    ],
)
def test_only_a_clean_tree_at_its_tag_can_be_released(tags: list[str], changes: list[str], says: str) -> None:
    check_source("0.2.0", ["v0.2.0", "nightly"], [])
    with pytest.raises(ReleaseError, match=says):
        check_source("0.2.0", tags, changes)


def test_the_notes_are_the_section_without_links_to_files() -> None:
    expected = "### Added\n\n- `verify`: see its page and [SemVer](https://semver.org/).\n"
    assert release_notes(CHANGELOG, "0.2.0") == expected


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        (CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- New.\n"), "unreleased changes"),
        (CHANGELOG.replace(" - 2026-11-24", ""), "needs a section '## 0.2.0 - YYYY-MM-DD'"),
        (CHANGELOG.replace("## 0.2.0 - 2026-11-24\n", ""), "unreleased changes"),
        ("# Changelog\n", "needs a section"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(changelog: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        release_notes(changelog, "0.2.0")


@pytest.mark.parametrize("requirement", ["'.[aio,cli]'", "'rabbit-chx[aio,cli]'"])
def test_the_first_example_installs_the_wheel(requirement: str) -> None:
    readme = README.replace("'.[aio,cli]'", requirement)
    script, printed = first_example(readme, Path("/dist/a.whl"))
    assert script == (
        f"{sys.executable} -m venv venv && venv/bin/pip install --quiet '/dist/a.whl[aio,cli]'\n"
        "venv/bin/rabbit-chx compare\n"
    )
    assert printed == "moved   1%\n"


def test_an_example_that_installs_something_else_is_refused_and_the_readme_has_another() -> None:
    with pytest.raises(ReleaseError, match="installs"):
        first_example(README.replace("'.[aio,cli]'", "other"), Path("a.whl"))
    _, printed = first_example((ROOT / "README.md").read_text(encoding="utf-8"), Path("a.whl"))
    assert printed.startswith("moved ")


def test_the_same_files_are_packed_into_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    folder.mkdir()
    (folder / "b.json").write_text("two")
    (folder / "a.json").write_text("one")
    first = pack(folder, "vectors-1")
    os.utime(folder / "a.json", (0, 0))
    assert pack(folder, "vectors-1") == first
    with tarfile.open(fileobj=BytesIO(first)) as tar:
        assert tar.getnames() == ["vectors-1/a.json", "vectors-1/b.json"]
        tar.extractall(tmp_path, filter="data")
    assert (tmp_path / "vectors-1" / "b.json").read_text() == "two"


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_a_release_is_made_from_the_tag_of_a_clone(tmp_path: Path) -> None:
    clone, wheels = tmp_path / "clone", tmp_path / "wheels"
    wheels.mkdir()
    names = "aio-pika click jinja2 markupsafe numpy pamqp pika starlette tomlkit typing-extensions uvicorn"
    installed_wheels(wheels, *names.split())
    offline = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, timeout=60)

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=clone, check=True, timeout=60)

    def release(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tools/release.py", *arguments]
        return subprocess.run(
            command, cwd=clone, env=offline, capture_output=True, text=True, timeout=600, check=False
        )

    (clone / "CHANGELOG.md").write_text(CHANGELOG.replace("0.2.0", __version__))
    git("commit", "--all", "--message", "test")
    assert "HEAD has no tag v" in release("--check").stderr
    git("tag", "--annotate", "--message", "test", f"v{__version__}")
    (clone / "new.txt").write_text("new")
    assert "?? new.txt" in release("--check").stderr
    (clone / "new.txt").unlink()
    assert release("--check").returncode == 0
    assert "rabbit-chx.cdx.json does not exist: make audit" in release().stderr
    dist = clone / "dist"
    dist.mkdir()
    bill = {"bomFormat": "CycloneDX", "metadata": {"component": {"version": "0.0.1"}}}
    (dist / "rabbit-chx.cdx.json").write_text(json.dumps(bill))
    assert f"describes version 0.0.1, not {__version__}" in release().stderr
    bill["metadata"] = {"component": {"version": __version__}}
    (dist / "rabbit-chx.cdx.json").write_text(json.dumps(bill))
    done = release()
    assert done.returncode == 0, done.stdout + done.stderr
    vectors, wheel = f"rabbit-chx-vectors-{__version__}.tar.gz", f"rabbit_chx-{__version__}-py3-none-any.whl"
    sources = ["SHA256SUMS", "rabbit-chx.cdx.json", f"rabbit_chx-{__version__}.tar.gz", "release-notes.md"]
    assert {path.name for path in dist.iterdir()} == {vectors, wheel, *sources}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True, timeout=60)
    assert (dist / "release-notes.md").read_text().startswith("### Added")
