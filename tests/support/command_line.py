"""What the tests of the command line share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rabbit_chx.routing import HashRing

PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))
BIND = ("--bind", "q1=1", "--bind", "q2=10")
#: The ring that BIND makes.
RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
EQUAL = ("--bind", "q1=1", "--bind", "q2=1")


def piped(arguments: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the program with this text on its stdin."""
    return subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, timeout=60, check=False)
