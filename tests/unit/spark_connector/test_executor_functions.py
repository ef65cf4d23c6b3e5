"""Functions of ours in the Python workers, and the check of the workers' Python."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkFiles

from rabbit_chx.errors import MissingExtraError, RabbitChxError
from spark_connector import executor_functions
from spark_connector.executor_functions import OnExecutor, check_worker_python, for_each_partition


def test_a_function_on_its_way_shows_no_arguments() -> None:
    shipped = OnExecutor(pickle.dumps, "c4nary")
    assert "c4nary" not in repr(shipped)
    assert shipped() == pickle.dumps("c4nary")


@pytest.fixture(autouse=True)
def _started_by_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)  # a worker finds what is in its folder
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "shipped"))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that lacks everything."""
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path


def session(python: object, master: str = "local[2]", environment: Any = None, **conf: Any) -> Any:
    context = SimpleNamespace(pythonExec=str(python), master=master, environment=environment or {})
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=conf.get))


def test_what_is_missing_and_what_to_do(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtraError) as caught:
        check_worker_python(session(python))
    assert str(caught.value) == (
        f"Spark's workers run {python}, which lacks spark_connector, rabbit_chx, pamqp, numpy, pyarrow: start the job with "
        f"`export PYSPARK_PYTHON={sys.executable}`, or set os.environ['PYSPARK_PYTHON'] = sys.executable before the session starts"
    )
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(MissingExtraError):
        check_worker_python(session("python3"))


def test_a_python_that_a_virtual_environment_links_to_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(executor_functions, "_find_missing", lambda *_: ("numpy",))
    with pytest.raises(MissingExtraError, match="which lacks numpy"):
        check_worker_python(session(tmp_path / "python"))


def test_a_python_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    words = r"Spark's workers are to run .*/nowhere, which is not there: start the job with"
    with pytest.raises(MissingExtraError, match=words):
        check_worker_python(session(tmp_path / "nowhere"))


def test_a_python_that_has_everything(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ours, by one name or another, or what it lacks is on its path, or is shipped to it."""
    check_worker_python(session(sys.executable))
    check_worker_python(session(Path(sys.executable).with_name("python3")))
    check_worker_python(session(python, **{"spark.sql.execution.pyspark.python": sys.executable}))
    for name in ("spark_connector", "rabbit_chx", "pamqp", "numpy", "pyarrow"):
        (tmp_path / "shipped" / name).mkdir(parents=True)
        (tmp_path / "shipped" / name / "__init__.py").touch()
    check_worker_python(session(python, environment={"PYTHONPATH": str(tmp_path / "shipped")}))
    monkeypatch.syspath_prepend(str(tmp_path / "shipped"))
    check_worker_python(session(python))


@pytest.mark.parametrize("partitions", [[0, 0], [0, 2]])
def test_a_partition_that_is_repeated_or_missing_is_an_error(partitions: list[int]) -> None:
    rows = [SimpleNamespace(partition=number, summary=pickle.dumps(number)) for number in partitions]
    frame: Any = SimpleNamespace(
        sparkSession=None, columns=[], mapInArrow=lambda *_: SimpleNamespace(collect=lambda: rows)
    )
    frame.toDF = lambda: frame
    with pytest.raises(RabbitChxError, match="one is missing or repeated"):
        for_each_partition(frame, len)


def test_unknown_facts_are_left_out(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_worker_python(None)
    check_worker_python(SimpleNamespace())  # type: ignore[arg-type]  # as Connect, it has no context
    check_worker_python(session(python, master="spark://elsewhere:7077"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho numpy\nexit 1\n")
    broken.chmod(0o755)
    check_worker_python(session(broken))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    check_worker_python(session(python))
