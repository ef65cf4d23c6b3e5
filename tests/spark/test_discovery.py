"""Spark finds the format by itself, from the wheel too; a Python without our packages says so in words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from bare_python import bare_python

if TYPE_CHECKING:
    Consumed = Callable[[], list[Any]]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

OTHER_PYTHON = pytest.mark.pyspark(
    "4.1", "a format that Spark has found, in another Python than the one that found it,"
)

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import os
import sys
from pyspark.sql import SparkSession

master, url, register = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.task.maxFailures", "1")
    .getOrCreate()
)
if register != "find":
    import spark_connector.worker_python

    if register == "unchecked":  # as where the driver cannot know the Python of the workers
        spark_connector.worker_python.check_worker_python = lambda spark: None
    spark_connector.register(spark)
df = spark.range(100).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")
try:
    df.write.format("rabbitmq").options(url=url, exchange="x").mode("append").save()
except Exception as cause:
    print(cause)
else:
    print("written with", spark.sparkContext.pythonExec)
spark.stop()
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without our packages."""
    return bare_python(tmp_path_factory.mktemp("bare"))


def run_job(python: Path, folder: Path, *arguments: str, executors: Path | None = None) -> str:
    job = folder / "job.py"
    job.write_text(JOB)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(executors or python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, job, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_found_in_the_wheel(vhost_url: str, consumed: Consumed, tmp_path: Path) -> None:
    python = bare_python(tmp_path / "venv")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
        assert {name.split("/")[0] for name in packed.namelist() if ".dist-info" not in name} == {
            "pyspark_rabbitmq",
            "rabbit_chx",
            "spark_connector",
        }
        for package in ("rabbit_chx", "spark_connector", "pyspark_rabbitmq"):
            assert f"{package}/py.typed" in packed.namelist()
    assert f"written with {python}" in run_job(python, tmp_path, "local[1]", vhost_url, "find")
    assert len(consumed()) == 100


NOT_ACTIVATED = """
from pyspark.sql import SparkSession
import spark_connector
from rabbit_chx import HashRing

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
rows = spark.range(1).selectExpr("'k' AS key", "'v' AS value")
options = {"url": "amqp://127.0.0.1:1", "exchange": "x", "preflight": "false"}
ring = HashRing.from_bindings([("q1", 1)])
for call in (
    lambda: rows.write.format("rabbitmq").options(**options).mode("append").save(),
    lambda: spark_connector.register(spark),
    lambda: spark_connector.publish(rows, options),
    lambda: spark_connector.dry_run(rows, options),
    lambda: rows.select(spark_connector.queue_for("key", ring)),
):
    try:
        call()
    except Exception as cause:
        print(f"{type(cause).__name__}: {cause}".replace("\\n", " "))
    else:
        print("nothing")
spark.stop()
"""


def test_a_job_of_a_virtual_environment_that_is_not_activated(other_python: Path, tmp_path: Path) -> None:
    """Its workers are the `python3` of `PATH`: what looks at them says so, and the page quotes what Spark says by itself."""
    path = tmp_path / "bin"
    path.mkdir()
    (path / "python3").symlink_to(other_python)
    job = tmp_path / "job.py"
    job.write_text(NOT_ACTIVATED)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    environment.pop("PYTHONPATH", None)
    environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, job],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_spark, *by_us = done.stdout.splitlines()
    not_found = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: rabbitmq."
    assert not_found in by_spark
    assert not_found in (ROOT / "docs" / "spark.md").read_text()
    lacks = (
        f"MissingExtraError: Spark's workers run {path / 'python3'}, which lacks spark_connector, rabbit_chx"
    )
    remedy = f": start the job with `export PYSPARK_PYTHON={sys.executable}`, or set "
    assert len(by_us) == 4
    assert all(line.startswith(lacks) and remedy in line for line in by_us), by_us


@OTHER_PYTHON
def test_a_planner_without_our_packages(vhost_url: str, other_python: Path, tmp_path: Path) -> None:
    said = run_job(Path(sys.executable), tmp_path, "local[1]", vhost_url, "unchecked", executors=other_python)
    assert f"the Python that plans for Spark, {other_python}, cannot load rabbit-chx" in said
    assert "install rabbit-chx[spark] there, or set PYSPARK_PYTHON to a Python that has it" in said


@pytest.fixture
def _work_of_a_local_cluster() -> Iterator[None]:
    """Executors of a local cluster work below SPARK_HOME and leave their folders there."""
    work = Path(pyspark.__file__).with_name("work")
    there = set(work.glob("*"))
    yield
    for folder in set(work.glob("*")) - there:
        shutil.rmtree(folder)
    if not there:
        work.rmdir()


@OTHER_PYTHON
@pytest.mark.usefixtures("_work_of_a_local_cluster", "channel")
def test_an_executor_without_our_packages(vhost_url: str, other_python: Path, tmp_path: Path) -> None:
    either = tmp_path / "python"
    either.write_text(
        "#!/bin/sh\n"
        f'if grep -aq CoarseGrainedExecutorBackend /proc/$PPID/cmdline; then exec {other_python} "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    either.chmod(0o755)
    said = run_job(
        Path(sys.executable), tmp_path, "local-cluster[1,1,512]", vhost_url, "register", executors=either
    )
    assert f"the Python of this Spark executor, {other_python}, cannot load rabbit-chx" in said
