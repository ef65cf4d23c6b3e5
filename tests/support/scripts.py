"""Python programs of their own, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from command_line import ended


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What this Python has said, with its Spark workers on this Python as well; it must end well, within 170 s."""
    done = ended(sys.executable, *map(str, arguments), PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    return done


#: The begin of a program of Spark, which shows and keeps as much as it can.
_BEGIN = """
import json
import sys
import time
import urllib.request
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession

folder = Path.cwd()
shown = {
    "spark.ui.port": "0",
    "spark.log.level": "DEBUG",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": (folder / "events").as_uri(),
    "spark.eventLog.compress": "false",
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
    "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
}
builder = SparkSession.builder.config(map=shown)
given = json.load(sys.stdin)
"""


def run_in_folder(program: str, folder: Path, given: object, **environment: str) -> None:
    """Run a program of Spark, so that a folder gets all that they write, their stdout and stderr among it; it must end well, within 360 s.

    Args:
        program: its text. It has the variables `folder` and `given`, and the `builder` of a session.
        folder: a new folder, in which it runs.
        given: what it reads from its stdin, as JSON.
        environment: variables besides our own.
    """
    for name in ("events", "local"):
        (folder / name).mkdir(parents=True)
    job = folder.with_name("job.py")
    job.write_text(_BEGIN + program)
    with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
        done = subprocess.run(
            [sys.executable, job],
            input=json.dumps(given),
            cwd=folder,
            stdout=stdout,
            stderr=stderr,
            text=True,
            timeout=360,
            check=False,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_DIRS": str(folder / "local"),
                **environment,
            },
        )
    said = (folder / "stderr").read_text()
    errors = [line for line in said.splitlines() if "rabbit_chx.errors" in line]
    assert done.returncode == 0, (errors, said[-3_000:])
