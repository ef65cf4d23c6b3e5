"""Python programs of their own, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What this Python has said, with its Spark workers on this Python as well; it must end well, within 170 s."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
