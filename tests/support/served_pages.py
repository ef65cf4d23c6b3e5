"""The pages of `rabbit-chx ui`, served by the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """Start the command, and pass the address that it prints. Ctrl-C ends it."""
    command = [sys.executable, "-c", "from rabbit_chx.cli import main; raise SystemExit(main())", "ui"]
    with subprocess.Popen(
        [*command, "--no-browser", "--port", "0", "--every", "1", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://")
            yield address.rstrip("/")
            process.send_signal(2)
            assert process.wait(20) == 0
        finally:
            process.kill()
