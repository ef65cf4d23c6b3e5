"""A standalone Spark cluster whose executors get our packages with the job, in the ways and words of docs/spark/write.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from bare_python import bare_python
from blocks import ROOT, page, python_blocks, replaced
from installed_wheels import installed_wheels
from standalone_spark import SPARK_HOME, StandaloneSpark, standalone_spark

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.0", "format('rabbitmq')"),
    pytest.mark.timeout(400),
]

PAGE = "docs/spark/write.md"
QUEUES = ("orders.1", "orders.2")
ROWS = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with standalone_spark(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running
        (left, *others) = sorted(running.processes().values(), key=lambda line: "Worker" in line)
        assert "Master" in left
        assert all("Worker" in line for line in others), "an executor outlives its job"
    assert running.processes() == {}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of our packages and of what executors need, in place of the package index."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    installed_wheels(folder, "numpy", "pamqp", "pika", "pandas", "pyarrow")
    return folder


@pytest.fixture
def job_folder(tmp_path: Path, vhost: RunningBroker) -> Path:
    """A folder with the page's job, which declares its exchange and queues in an empty vhost."""
    (job,) = [block for block in python_blocks(PAGE) if block.startswith("# job.py\n")]
    for address, here in (("amqp://localhost", vhost.url), ("http://localhost:15672", vhost.management_url)):
        assert address in job
        job = job.replace(address, str(here))
    (tmp_path / "job.py").write_text(job)
    return tmp_path


def run_as_written(
    heading: str, cluster: StandaloneSpark, folder: Path, wheels: Path, python: str = "python3"
) -> Path:
    """Run the commands of a section, and return the folder of the job's executors.

    Only the address of the master is another, and instead of the clone a wheel of it is installed.
    """
    section = page(PAGE).partition(f"### {heading}\n")[2].partition("\n##")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    here = {"spark://master:7077": cluster.master, "/path/to/clone": "rabbit-chx"}
    assert all(said in block for said in here)
    done = cluster.submit(
        f"set -e\n{replaced(block, here)}",
        cwd=folder,
        PIP_NO_INDEX="1",
        PIP_NO_COMPILE="1",
        GZIP="-1",  # the archive is used once
        PIP_FIND_LINKS=str(wheels),
        PATH=f"{SPARK_HOME / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        PYSPARK_PYTHON=python,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:] + cluster.executor_logs()[-4000:]
    executors = max(cluster.folder.glob("work/app-*"))
    assert sorted(path.name for path in executors.iterdir()) == ["0", "1"]  # by the numbers of Spark
    return executors


def rows_in_queues(url: str) -> int:
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        return sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)


@pytest.mark.slow
def test_the_commands_of_the_zip_run_on_a_cluster(
    cluster: StandaloneSpark, wheels: Path, job_folder: Path, vhost: RunningBroker
) -> None:
    python = bare_python(job_folder / "bare")
    lacking = subprocess.run(
        [python, "-I", "-c", "import pyarrow, pamqp, rabbit_chx"], capture_output=True, text=True, check=False
    )
    assert lacking.stderr.endswith("No module named 'rabbit_chx'\n")
    run_as_written("As a zip", cluster, job_folder, wheels, str(python))
    assert rows_in_queues(vhost.url) == ROWS


@pytest.mark.slow
def test_the_commands_of_the_archive_run_on_a_cluster(
    cluster: StandaloneSpark, wheels: Path, job_folder: Path, vhost: RunningBroker
) -> None:
    executors = run_as_written("As an archive", cluster, job_folder, wheels)
    assert rows_in_queues(vhost.url) == ROWS
    for executor in executors.iterdir():
        environment = executor / "environment"
        assert (environment / "bin" / "python").exists()
        assert list(environment.glob("lib/python*/site-packages/rabbit_chx/__init__.py"))
