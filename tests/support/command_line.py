"""What the tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path

from rabbit_chx.routing import HashRing

PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))
BIND = ("--bind", "q1=1", "--bind", "q2=10")
#: The ring that BIND makes.
RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
EQUAL = ("--bind", "q1=1", "--bind", "q2=1")
