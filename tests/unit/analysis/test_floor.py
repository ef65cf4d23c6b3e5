"""Importing the floor is cheap: NumPy comes with the first count."""

from __future__ import annotations

import subprocess
import sys

CODE = (
    "import sys, rabbit_chx.analysis; print({'numpy', 'pika', 'pamqp', 'rich', 'click'} & set(sys.modules))"
)


def test_importing_analysis_loads_no_array_library_and_no_client() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
