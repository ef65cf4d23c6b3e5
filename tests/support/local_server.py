"""A broker from the ``rabbitmq-server`` of this machine, run privately.

Everything is in a folder of its own and not in the system's directories, including the Erlang port mapper
(epmd) and the cookie. Nothing of the caller's environment reaches the server. POSIX only.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reaper import Reaper, kill_group

from rabbit_chx.errors import InputError, NoBrokerError
from rabbit_chx.testing.containers import SHARED_CORES
from rabbit_chx.testing.running_broker import (
    PLUGINS,
    RunningBroker,
    free_ports,
    guest_urls,
    last_lines,
    wait_until_serving,
)

_SERVING_TIMEOUT_S = 150
_SHUTDOWN_TIMEOUT_S = 60
_ATTEMPTS = 3

# epmd runs in the server's process group, so that it ends with it; by itself it would leave every group.
_SERVE = """\
#!/bin/sh
echo $$ >server.pid || exit 1
epmd &
tries=0
until epmd -names >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || exit 1
    sleep 0.1
done
exec rabbitmq-server
"""


@contextmanager
def local_broker() -> Iterator[RunningBroker]:
    """Start a broker from the machine's own ``rabbitmq-server``; it is removed at the end.

    Raises:
        NoBrokerError: there is no ``rabbitmq-server``, or it does not serve; the message says which.
    """
    tools = find_tools()
    with ExitStack() as stack:
        for left in reversed(range(_ATTEMPTS)):
            server = _LocalServer()
            stack.callback(server.remove)
            server.write_files(tools)
            try:
                version = server.launch()
                break
            except NoBrokerError as error:
                if not left or "eaddrinuse" not in str(error):
                    raise
        yield RunningBroker(
            url=server.url,
            management_url=server.management_url,
            version=version,
            ring_via=(str(server.wrapper),),
            origin=f"rabbitmq-server of this machine in {tools} (RabbitMQ {version})",
            server=server,
            stream_port=server.stream_port,
        )


def find_tools() -> Path:
    """Return the directory of the programs ``rabbitmq-server``, ``rabbitmqctl`` and so on.

    Raises:
        NoBrokerError: there is no ``rabbitmq-server``, or no Erlang.
    """
    program = shutil.which("rabbitmq-server")
    candidates = [Path(program).resolve().parent] if program else []
    # The programs that Debian has in /usr/sbin change the user; those behind them do not.
    candidates.append(Path("/usr/lib/rabbitmq/bin"))
    for tools in candidates:
        # rabbitmq-env is what the real programs have beside them.
        if (tools / "rabbitmq-server").exists() and (tools / "rabbitmq-env").exists():
            break
    else:
        raise NoBrokerError("no rabbitmq-server on PATH or in /usr/lib/rabbitmq/bin")
    if not shutil.which("epmd"):
        raise NoBrokerError(f"there is a rabbitmq-server in {tools}, but no epmd (Erlang) on PATH")
    return tools


class _Ports(NamedTuple):
    amqp: int
    management: int
    stream: int
    distribution: int
    epmd: int


class _LocalServer:
    """One private server with its folder, its ports and its process group."""

    def __init__(self) -> None:
        self._ports = _Ports(*free_ports(len(_Ports._fields)))
        self.url, self.management_url = guest_urls(self._ports.amqp, self._ports.management)
        self.stream_port = self._ports.stream
        self._folder = Path(tempfile.mkdtemp(prefix="rabbit-chx-")).resolve()
        self._reaper = Reaper("server", str(self._folder))
        self._process: subprocess.Popen[bytes] | None = None
        self.wrapper = self._folder / "with-tools"

    def launch(self) -> str:
        """Start the server, and return its version once it serves."""
        if not self._folder.exists():
            raise NoBrokerError("the local server was stopped and removed; start another broker")
        if not self._running():
            with (self._folder / "server.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [self.wrapper, self._folder / "serve"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        return self._wait()

    def _wait(self) -> str:
        return wait_until_serving(
            self.url,
            self.management_url,
            timeout_s=_SERVING_TIMEOUT_S,
            running=self._running,
            log=self.log,
            tools=(str(self.wrapper),),
        )

    def start(self) -> None:
        self.launch()

    def restart(self) -> None:
        self.shut_down()
        self.launch()

    def shut_down(self) -> None:
        self._signal_group(signal.SIGCONT)  # a paused server gets no signal
        if self._process is not None and self._running():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SHUTDOWN_TIMEOUT_S)
        self.kill()

    def pause(self) -> None:
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_group(signal.SIGCONT)
        self._wait()

    def disconnect(self) -> None:
        raise InputError(
            "a server of this machine has no network of its own that could be cut: use docker_broker(), or pause it"
        )

    reconnect = disconnect

    def kill(self) -> None:
        if self._process is not None:
            kill_group(str(self._folder))
            self._process.kill()
            self._process.wait()
            _wait_for_end_of_group(self._process.pid)
            self._process = None

    def log(self, lines: int = 20) -> str:
        text = (self._folder / "server.log").read_text(encoding="utf-8", errors="replace")
        # The word that says "port taken" matters even where it is not in the last lines.
        hint = "\n(eaddrinuse)" if "eaddrinuse" in text else ""
        return last_lines(text, lines) + hint

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._reaper.dismiss()

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None and self._running():
            os.killpg(self._process.pid, number)

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def write_files(self, tools: Path) -> None:
        """Write its configuration, and the program that runs the tools in its environment."""
        for name in ("home", "data", "log"):
            (self._folder / name).mkdir()
        plugins_dir = _plugins_dir(tools)
        plugins = [name for name in PLUGINS if any(plugins_dir.glob(f"{name}-*"))]
        self._write("enabled_plugins", f"[{','.join(plugins)}].\n")
        self._write("rabbitmq.conf", _config(self._ports, plugins))
        self._write("home/.erlang.cookie", secrets.token_hex(16), mode=0o400)
        environment = _environment(self._folder, tools, plugins_dir, self._ports)
        assignments = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        folder = shlex.quote(str(self._folder))
        self._write(
            self.wrapper.name, f'#!/bin/sh\ncd {folder} && exec env -i {assignments} "$@"\n', mode=0o700
        )
        self._write("serve", _SERVE, mode=0o700)

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)


def _plugins_dir(tools: Path) -> Path:
    """Return the directory of the plugins: beside the programs upstream, a place of its own on Debian."""
    versioned = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"))
    for folder in (tools.parent / "plugins", *reversed(versioned)):
        if any(folder.glob("rabbitmq_consistent_hash_exchange-*")):
            return folder
    raise NoBrokerError(f"the rabbitmq-server in {tools} has no rabbitmq_consistent_hash_exchange plugin")


def _config(ports: _Ports, plugins: list[str]) -> str:
    lines = [f"listeners.tcp.1 = 127.0.0.1:{ports.amqp}"]
    if "rabbitmq_management" in plugins:
        lines += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {ports.management}"]
    if "rabbitmq_stream" in plugins:
        lines.append(f"stream.listeners.tcp.1 = 127.0.0.1:{ports.stream}")
    return "\n".join(lines) + "\n"


def _environment(folder: Path, tools: Path, plugins_dir: Path, ports: _Ports) -> dict[str, str]:
    return {
        "PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}",
        "HOME": f"{folder}/home",
        "LANG": "C.UTF-8",
        "ERL_FLAGS": "-start_epmd false",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(ports.epmd),
        "RABBITMQ_NODENAME": f"{folder.name}@localhost",
        "RABBITMQ_DIST_PORT": str(ports.distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {SHARED_CORES}",
        "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
        "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
        "RABBITMQ_CONFIG_FILES": f"{folder}/conf.d",
        "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
        "RABBITMQ_PLUGINS_DIR": str(plugins_dir),
        "RABBITMQ_MNESIA_BASE": f"{folder}/data",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_LOGS": "-",
    }


def _wait_for_end_of_group(group: int) -> None:
    """Wait until no process of the group is left that could hold a port or write into the folder."""
    deadline = time.monotonic() + 5
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)
