"""An application that uvicorn serves in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(application: str, folder: Path, url: str) -> Iterator[int]:
    """Serve an application of a folder, with the broker of a URL, and pass its port. It ends in order."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # passed on, so that nobody else gets its port
        port: int = listener.getsockname()[1]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "uvicorn",
                application,
                f"--fd={listener.fileno()}",
                "--log-level=warning",
            ],
            cwd=folder,
            env={**os.environ, "AMQP_URL": url},
            pass_fds=[listener.fileno()],
        )
    try:
        yield port
        process.terminate()
        assert process.wait(30) in (0, -15)  # uvicorn raises the signal again after its shutdown
    finally:
        process.kill()
        process.wait()
