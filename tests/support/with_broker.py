"""Run a Python program with the broker that the tests find: ``python tests/support/with_broker.py examples/flights.py``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from found_broker import find_broker

from rabbit_chx.errors import RabbitChxError


def main(program: list[str]) -> int:
    """Run the program, which finds the broker by variables; return its exit code."""
    with find_broker() as broker:
        variables = {"URL": broker.url, "MANAGEMENT_URL": broker.management_url}
        variables["RING_VIA"] = None if broker.ring_via is None else shlex.join(broker.ring_via)
        found = {f"RABBIT_CHX_TEST_{name}": value for name, value in variables.items() if value is not None}
        return subprocess.run([sys.executable, *program], env=os.environ | found, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RabbitChxError as cause:
        sys.exit(str(cause))
