"""A broker that serves, and what may be done to it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rabbit_chx.errors import BrokerRefusedError, InputError
from rabbit_chx.testing.commands import last_lines, run_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PLUGINS", "RunningBroker", "Server", "masked"]

PLUGINS = (
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_management",
    "rabbitmq_sharding",
    "rabbitmq_stream",
)
"""What is enabled in every broker that we start, as far as its release has it."""


class Server(Protocol):
    """A server that we started."""

    def start(self) -> None:
        """Return when it serves, with its old ports and data; nothing to do if it runs."""

    def restart(self) -> None:
        """Stop it in good order, then start it."""

    def kill(self) -> None:
        """End it by SIGKILL; nothing to do if it does not run."""

    def shut_down(self) -> None:
        """End it in good order; nothing to do if it does not run."""

    def pause(self) -> None:
        """Freeze it; nothing to do if it is frozen."""

    def resume(self) -> None:
        """Return when it serves again; nothing to do if it is not frozen."""

    def disconnect(self) -> None:
        """Cut it off the network; nothing to do if it is cut off."""

    def reconnect(self) -> None:
        """Return when it serves again, at its old ports; nothing to do if it is not cut off."""

    def log(self) -> str:
        """The last lines that it wrote, also when it does not run."""

    def remove(self) -> None:
        """End it and remove all that it left; may be called again."""


@dataclass(frozen=True, slots=True, repr=False)
class RunningBroker:
    """A broker for tests.

    Attributes:
        url: where AMQP is spoken, with user, password and vhost.
        management_url: where the HTTP API is, with user and password; None if there is none.
        version: as the broker itself gives it, such as ``"4.3.6"``.
        ring_via: what stands before a command of the CLI tools, such as ``("docker", "exec", ID)``;
            None if they cannot be run.
        origin: one line for people: what it is and where it came from.
        server: what restarts, breaks and removes it; None if we did not start it.
    """

    url: str
    management_url: str | None
    version: str
    ring_via: tuple[str, ...] | None
    origin: str
    server: Server | None = field(default=None, compare=False)

    @property
    def owned(self) -> bool:
        """Whether we started it, so that it may be restarted and broken."""
        return self.server is not None

    def run(self, *command: str, timeout_s: float = 60) -> str:
        """Run a CLI tool against the broker and return its stdout.

        Args:
            command: the tool and its arguments, such as ``"rabbitmqctl", "list_queues"``.
            timeout_s: the time after which the tool is killed, in seconds.

        Raises:
            InputError: we did not start this broker.
            BrokerRefusedError: the tool failed; the message has what it wrote to stderr.
            BrokerTimeoutError: the tool did not end in time.
        """
        self._server("run a command in")
        result = run_bounded(((self.ring_via or ()) + command), timeout_s=timeout_s)
        if result.returncode:
            # rabbitmqctl repeats its arguments after a usage error, and they may hold a password.
            why = last_lines(result.stderr.partition("Arguments given")[0])
            raise BrokerRefusedError(f"{' '.join(command[:2])} exited with {result.returncode}: {why}")
        return result.stdout

    def restart(self) -> None:
        """Restart the server in good order; returns when it serves again at the same URLs."""
        self._server("restart").restart()

    def kill(self) -> None:
        """Kill the server by SIGKILL; its data stays for `start`."""
        self._server("kill").kill()

    def shut_down(self) -> None:
        """End the server in good order; its data stays for `start`."""
        self._server("shut down").shut_down()

    def start(self) -> None:
        """Start the server after `kill` or `shut_down`; returns when it serves again at the same URLs."""
        self._server("start").start()

    def pause(self) -> None:
        """Freeze the server: its connections stay open, and nothing is answered until `resume`."""
        self._server("pause").pause()

    def resume(self) -> None:
        """Let a paused server go on; returns when it serves again."""
        self._server("resume").resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """`pause`, and `resume` at the end of the block whatever happens in it."""
        try:
            self.pause()
            yield
        finally:
            self.resume()

    def disconnect(self) -> None:
        """Cut a server in Docker off the network, from its clients and from other nodes, until `reconnect`.

        Packets vanish: whoever was connected is told nothing, and who connects anew is refused. The server's own
        command line tools do not reach it either.

        Raises:
            InputError: we did not start this broker, or it is not in Docker.
        """
        self._server("disconnect").disconnect()

    def reconnect(self) -> None:
        """Undo `disconnect`; returns when the server serves again at the same URLs."""
        self._server("reconnect").reconnect()

    @contextmanager
    def disconnected(self) -> Iterator[None]:
        """`disconnect`, and `reconnect` at the end of the block whatever happens in it."""
        try:
            self.disconnect()
            yield
        finally:
            self.reconnect()

    def log(self) -> str:
        """The last lines of the server's log, also when it does not run: why a test failed may stand there."""
        return self._server("read the log of").log()

    def stop(self) -> None:
        """End the server and remove everything of it; may be called again."""
        self._server("stop").remove()

    def _server(self, verb: str) -> Server:
        if self.server is None:
            raise InputError(
                f"cannot {verb} the broker at {masked(self.url)}: rabbit_chx.testing did not start it;"
                " use docker_broker() or local_broker() for a broker that may be broken"
            )
        return self.server

    def __repr__(self) -> str:
        management = self.management_url and masked(self.management_url)
        return (
            f"RunningBroker(url={masked(self.url)!r}, management_url={management!r}, version={self.version!r},"
            f" ring_via={self.ring_via!r}, origin={self.origin!r}, owned={self.owned!r})"
        )


def masked(url: str) -> str:
    """The URL without its password; also of text that is no proper URL."""
    scheme, separator, rest = url.partition("://")
    if not scheme.isalpha() or not separator:
        scheme, separator, rest = "", "", url
    user_info, at, where = rest.rpartition("@")
    user, colon, _password = user_info.partition(":")
    return f"{scheme}{separator}{user}{colon and ':***'}{at}{where}"
