"""The command that adds an extra to this copy."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx import version
from rabbit_chx.version import install_command, missing_extra

_ROOT = Path(__file__).parents[2]
_REQUIRES = (
    "numpy>=1.26",
    "click>=8.1; extra == 'cli'",
    'pandas<3,>=2.2; extra == "spark"',
    'pyarrow>=15 ; extra == "spark"',
)


def install(monkeypatch: pytest.MonkeyPatch, record: dict[str, Any] | None) -> None:
    """Let this copy be installed with a record of pip, or without one."""
    files = {} if record is None else {"direct_url.json": json.dumps(record)}
    installed = SimpleNamespace(read_text=files.get, requires=_REQUIRES)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: installed)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "pip install -e '{here}[cli]'"),
        ({"url": "file://{here}", "dir_info": {}}, "pip install '{here}[cli]'"),
        ({"url": "file://{here}/a%20b.whl", "archive_info": {}}, "pip install '{here}/a b.whl[cli]'"),
        ({"url": "file://{here}/deleted.whl", "archive_info": {}}, "pip install 'click>=8.1'"),
        (
            {"url": "https://example.org/a.whl", "archive_info": {}},
            "pip install 'rabbit-chx[cli] @ https://example.org/a.whl'",
        ),
        (
            {"url": "https://example.org/r.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "pip install 'rabbit-chx[cli] @ git+https://example.org/r.git@0a1b'",
        ),
        (None, "pip install 'click>=8.1'"),
    ],
)
def test_the_command_names_where_this_copy_was_installed_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: dict[str, Any] | None, expected: str
) -> None:
    (tmp_path / "a b.whl").touch()
    if record is not None:
        record = record | {"url": record["url"].replace("{here}", str(tmp_path))}
    install(monkeypatch, record)
    assert install_command("cli") == expected.replace("{here}", str(tmp_path))


def test_without_a_record_the_command_names_all_packages_of_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, None)
    assert install_command("spark") == "pip install 'pandas<3,>=2.2' 'pyarrow>=15'"
    monkeypatch.setattr(version, "IS_ON_INDEX", True)
    assert install_command("spark") == "pip install 'rabbit-chx[spark]'"


def test_a_copy_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    error = missing_extra("a page", "jinja2", "cli")
    assert str(error) == (
        "a page needs jinja2, which is not installed: install the packages of the extra 'cli' in pyproject.toml"
    )


def test_no_text_of_the_product_installs_by_a_name_that_no_index_has() -> None:
    folders = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq", "docs", "examples")
    files = [_ROOT / "README.md", *(path for folder in folders for path in (_ROOT / folder).rglob("*"))]
    by_name = re.compile(r"""pip install [^`\n]*(?<![/.\w])rabbit[-_]chx(?!.*@)""")
    assert (
        version.IS_ON_INDEX
        or {
            path
            for path in files
            if path.suffix in {".py", ".md", ".ipynb", ".toml"} and by_name.search(path.read_text())
        }
        == set()
    )
