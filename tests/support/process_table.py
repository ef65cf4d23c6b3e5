"""The processes of a session, as Linux shows them: what they are, what they hold, to whom they talk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment.

    Attributes:
        pid: its number.
        parent: the number of its parent.
        command: its arguments, with spaces between them.
        resident_bytes: the memory that it holds.
        files: the number of its open file descriptors.
    """

    pid: int
    parent: int
    command: str
    resident_bytes: int
    files: int


def processes_of(session: int) -> list[Process]:
    """Return the living processes of a session, which all have in common that one process has begun it.

    Args:
        session: the number of the process that began it (``start_new_session=True``).
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent, _, its_session = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(
                    Process(
                        int(folder.name),
                        int(parent),
                        (folder / "cmdline").read_text().replace("\0", " "),
                        int((folder / "statm").read_text().split()[1]) * _PAGE,
                        len(list((folder / "fd").iterdir())),
                    )
                )
    return found


def connected_to(port: int, process: Process) -> bool:
    """Whether a process has an open TCP connection to a port.

    Args:
        port: the other end's.
        process: one that may have ended.
    """
    with suppress(OSError):
        return not _sockets_to(port).isdisjoint(_links_of(process.pid))
    return False


def _sockets_to(port: int) -> set[str]:
    """Return the sockets of the established connections to a port, as links of descriptors name them."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01" and int(fields[2].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _links_of(pid: int) -> Iterator[str]:
    """Yield what the open file descriptors of a process are."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield str(descriptor.readlink())
