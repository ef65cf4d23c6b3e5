"""The workflows of GitHub: what zizmor and actionlint, which `make check` runs, do not compare."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from rabbit_chx.routing.release import NEWEST_PATCHES

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_by_a_commit_and_nothing_is_permitted_by_default(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    actions = re.findall(r"uses: (?!\./)(.*)", text)
    pinned = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [action for action in actions if not pinned.fullmatch(action)] == []
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)


def test_the_jobs_with_an_identity_check_nothing_out() -> None:
    texts = [path.read_text(encoding="utf-8") for path in WORKFLOWS]
    jobs = [job for text in texts for job in re.split(r"^  (?=[\w-]+:)", text, flags=re.MULTILINE)]
    with_identity = [job for job in jobs if "id-token: write" in job]
    assert sorted(job.partition(":")[0] for job in with_identity) == ["deploy", "publish"]
    assert not any(re.search(r"actions/checkout|\brun:", job) for job in with_identity)


def test_the_versions_of_python_are_those_of_the_matrix() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"\|\| '\[(.*)\]'\) \}\}$", workflow, re.MULTILINE)
    (matrix,) = re.findall(r"^PYTHONS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert tested.replace('"', "").split(", ") == classified
    assert matrix.split() == [*classified, "3.14t"]
    assert "make long WHAT=python-matrix PYTHONS=3.14t" in workflow


def test_ci_runs_parity_on_the_official_images_and_spark_on_all_versions() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    matrices = {name: job.get("strategy", {}).get("matrix", {}) for name, job in workflow["jobs"].items()}
    known = {".".join(version.split(".")[:2]) for version in NEWEST_PATCHES}
    assert matrices["parity"]["series"] == ["3.13", "4.0", "4.1", "4.2", "4.3", "4.4"]
    assert set(matrices["parity"]["series"]) <= known
    (sparks,) = re.findall(r"^SPARKS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert matrices["spark"]["pyspark"] == sparks.split()
