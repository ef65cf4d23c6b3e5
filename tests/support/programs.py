"""Programs that a few tests run, and that `.ci/run` installs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rabbit_chx.testing import skip_unless_ci

#: Where `.ci/run` unpacks packages that are not on `PATH`.
PROGRAMS = Path(sys.prefix, ".programs")


def program(name: str) -> str:
    """Return the path of a program; without it the test is skipped, in CI it fails."""
    found = shutil.which(name) or shutil.which(name, path=f"{PROGRAMS}/usr/bin:/usr/sbin")
    if found is None:
        skip_unless_ci(f"NOT TRIED: there is no {name} on this machine; as root on Debian .ci/run gets it")
    return found
