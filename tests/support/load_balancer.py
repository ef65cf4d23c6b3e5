"""A load balancer: Debian's haproxy, as a child process, in front of the stream ports of a cluster."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from programs import program

#: Connections are given to the nodes in turn. A node that is down gets none after two checks.
_CONFIG = """
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    option redispatch
listen streams
    bind fd@{descriptor}
    balance roundrobin
{servers}
"""


@contextmanager
def haproxy(ports: Sequence[int], folder: Path) -> Iterator[int]:
    """Run haproxy in front of ports of 127.0.0.1 for a ``with`` block, and give the port that it listens on.

    Args:
        ports: of the nodes.
        folder: for its configuration and its log.
    """
    executable = program("haproxy")
    servers = "\n".join(
        f"    server node{number} 127.0.0.1:{each} check inter 500 fall 2 rise 2"
        for number, each in enumerate(ports, 1)
    )
    config = folder / "haproxy.cfg"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,  # passed on, so that nobody else gets its port
        (folder / "haproxy.log").open("wb") as log,
    ):
        descriptor, port = listener.fileno(), listener.getsockname()[1]
        config.write_text(_CONFIG.format(descriptor=descriptor, servers=servers))
        command = [executable, "-db", "-f", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log, pass_fds=[descriptor])
    try:
        yield port
        assert process.poll() is None, (folder / "haproxy.log").read_text()
    finally:
        process.kill()
        process.wait()
