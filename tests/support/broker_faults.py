"""Faults of a broker that the tests started. Afterwards it serves at its old URLs, with its old data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from rabbit_chx.errors import InputError, NoBrokerError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import ContainerServer, docker

#: How many seconds a server may take to end in good order, before Docker kills it.
_GRACE_S = 30
_COMMAND_TIMEOUT_S = 60
_ATTEMPTS = 3
# Docker leaves a container's old address in /etc/hosts when it takes it off a network. Another container may have that
# address by now, and the server's tools then talk to that one.
_FORGET_ADDRESS = """hosts=$(grep -v "[[:space:]]$(hostname)" /etc/hosts) && echo "$hosts" >/etc/hosts"""


class Faults(Protocol):
    """What can happen to a server. Each may be done twice."""

    def start(self) -> None:
        """Start the server with its old ports and data, and wait until it serves."""

    def restart(self) -> None:
        """Stop the server in good order, then start it."""

    def kill(self) -> None:
        """Kill the server by SIGKILL."""

    def shut_down(self) -> None:
        """End the server in good order."""

    def pause(self) -> None:
        """Freeze the server: its connections stay open, and it answers nothing."""

    def resume(self) -> None:
        """Unfreeze the server, and wait until it serves."""

    def disconnect(self) -> None:
        """Cut the server off the network: packets vanish, and a new connection is refused, also one of its own command line tools."""

    def reconnect(self) -> None:
        """Put the server back on the network, and wait until it serves."""


def faults_of(broker: RunningBroker) -> Faults:
    """Return the faults of a broker; an InputError for one that somebody else started."""
    server = broker.server
    if server is None:
        raise InputError(f"{broker.origin} is not ours, and is not broken")
    return _ContainerFaults(server) if isinstance(server, ContainerServer) else cast("Faults", server)


@contextmanager
def paused(broker: RunningBroker) -> Iterator[None]:
    """Pause a broker for a block, and resume it whatever happens in it."""
    faults = faults_of(broker)
    try:
        faults.pause()
        yield
    finally:
        faults.resume()


@contextmanager
def disconnected(broker: RunningBroker) -> Iterator[None]:
    """Cut a broker off for a block, and reconnect it whatever happens in it."""
    faults = faults_of(broker)
    try:
        faults.disconnect()
        yield
    finally:
        faults.reconnect()


class _ContainerFaults:
    """Faults of a container."""

    def __init__(self, server: ContainerServer) -> None:
        self._server = server

    def start(self) -> None:
        self._server.docker("start")
        self._server.wait()

    def restart(self) -> None:
        self.shut_down()
        self.start()

    def kill(self) -> None:
        if self._server.is_running():
            self._server.docker("kill")

    def shut_down(self) -> None:
        self._thaw()  # a frozen server gets no signal; Docker thaws it too, but waits forever if that fails
        self._server.docker("stop", "-t", str(_GRACE_S), timeout_s=_GRACE_S + _COMMAND_TIMEOUT_S)

    def pause(self) -> None:
        self._repeat("pause", until=self._is_paused)

    def resume(self) -> None:
        if self._is_paused():
            self._thaw()
            self._server.wait()

    def disconnect(self) -> None:
        if self._is_connected():
            self._server.docker("network", "disconnect", self._server.network or "bridge")

    def reconnect(self) -> None:
        if not self._is_connected():
            docker("exec", "--user", "0", self._server.name, "sh", "-c", _FORGET_ADDRESS)
            self._server.docker("network", "connect", self._server.network or "bridge")
            self._server.wait()

    def _thaw(self) -> None:
        self._repeat("unpause", until=lambda: not self._is_paused())

    def _repeat(self, command: str, until: Callable[[], bool]) -> None:
        """Repeat a command that fails now and then: on a busy machine with cgroup v1, runc may be unable to freeze."""
        for attempt in range(1, _ATTEMPTS + 1):
            if until():
                return
            try:
                self._server.docker(command)
            except NoBrokerError:
                if attempt == _ATTEMPTS:
                    raise

    def _is_paused(self) -> bool:
        return self._server.state("{{.State.Paused}}") == "true"

    def _is_connected(self) -> bool:
        return self._server.state("{{len .NetworkSettings.Networks}}") != "0"
