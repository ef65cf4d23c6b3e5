"""A load balancer: Debian's haproxy, as a child process, in front of the stream ports of a cluster."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from programs import program

from rabbit_chx.testing.running_broker import free_ports

_START_S = 10.0
#: Connections are given to the nodes in turn. A node that is down gets none after two checks.
_CONFIG = """
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    option redispatch
listen streams
    bind 127.0.0.1:{port}
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
    (port,) = free_ports(1)
    servers = "\n".join(
        f"    server node{number} 127.0.0.1:{each} check inter 500 fall 2 rise 2"
        for number, each in enumerate(ports, 1)
    )
    config = folder / "haproxy.cfg"
    config.write_text(_CONFIG.format(port=port, servers=servers))
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([executable, "-db", "-f", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_S
        while f"127.0.0.1:{port}" not in _listening():
            assert process.poll() is None, (folder / "haproxy.log").read_text()
            assert time.monotonic() < deadline, "haproxy does not listen"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def _listening() -> set[str]:
    """The addresses of IPv4 that listen on this machine."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    found = set()
    for _, local, _, state, *_ in map(str.split, lines):
        host, _, port = local.partition(":")
        if state == "0A":
            found.add(f"{'.'.join(str(byte) for byte in reversed(bytes.fromhex(host)))}:{int(port, 16)}")
    return found
