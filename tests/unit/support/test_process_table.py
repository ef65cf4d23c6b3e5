"""The table of processes, of a program that has a child and a connection."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from process_table import connected_to, processes_of

PROGRAM = """
import socket, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)", "the child"], stdout=subprocess.PIPE
)
child.stdout.readline()  # while it starts, it opens files of its own
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


def test_a_session_its_processes_and_their_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            parent, child = sorted(
                processes_of(program.pid), key=lambda process: process.parent == program.pid
            )
            assert (parent.pid, child.parent) == (program.pid, program.pid)
            assert child.command.endswith("the child ")
            assert parent.files > child.files
            assert connected_to(port, parent)
            assert not connected_to(port, child)
            assert not connected_to(port + 1, parent)
    deadline = time.monotonic() + 30
    while processes_of(program.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(program.pid) == []
