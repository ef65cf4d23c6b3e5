"""A broker in a Docker container."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rabbit_chx import errors
from rabbit_chx.testing.running_broker import (
    PLUGINS,
    RunningBroker,
    amqp_version,
    check_management,
    free_ports,
    guest_urls,
    last_lines,
    mask,
    run_bounded,
    wait_until_serving,
)
from rabbit_chx.version import missing_extra

_ANSWER_TIMEOUT_S = 10
_PULL_TIMEOUT_S = 60
#: After a pull that timed out, for so long no process waits for another one.
_PULL_AGAIN_AFTER_S = 600
_COMMAND_TIMEOUT_S = 60
_SERVING_TIMEOUT_S = 150
_ATTEMPTS = 3

_PORT_TAKEN = ("port is already allocated", "address already in use")

# A sample for each of the last 605 seconds.
_RETENTION = ",".join(f"{{{name},[{{605,1}}]}}" for name in ("global", "basic", "detailed"))
# The lists of connections and consumers, and the figures of queues, are updated each second and not every five: tests wait for them.
_EACH_SECOND = (
    f"-rabbit collect_statistics_interval 1000 -rabbitmq_management sample_retention_policies [{_RETENTION}]"
)

#: For servers and tests that share few cores: a scheduler without work does not spin, which newer releases have by default, and no scheduler
#: is bound to a core. RabbitMQ's runtime tuning guide.
SHARED_CORES = "+sbwt none +sbwtdcpu none +sbwtdio none +stbt u"

# Written by the container itself, at every start: only there the plugins of the release are known.
SERVE = f"""
enabled=
for plugin in {" ".join(PLUGINS)}; do
    ls -d /opt/rabbitmq/plugins/$plugin-* >/dev/null 2>&1 && enabled="$enabled${{enabled:+,}}$plugin"
done
echo "[$enabled]." >/etc/rabbitmq/enabled_plugins
export RABBITMQ_DEFAULT_USER=guest RABBITMQ_DEFAULT_PASS=guest
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS {SHARED_CORES} {_EACH_SECOND}"
exec docker-entrypoint.sh rabbitmq-server
"""


@contextmanager
def docker_broker(series: str = "4.3", image: str | None = None) -> Iterator[RunningBroker]:
    """Start a broker in a container for a ``with`` block, and remove it at the end.

    Args:
        series: the release series; the image is then ``rabbitmq:SERIES-management``.
        image: another image that behaves as the official images do; None for the official image.

    Raises:
        MissingExtraError: testcontainers is not installed.
        NoBrokerError: there is no Docker or no image, or the server does not serve; the message says which.
    """
    broker = start_docker_broker(series, image)
    try:
        yield broker
    finally:
        broker.stop()


def start_docker_broker(series: str = "4.3", image: str | None = None) -> RunningBroker:
    """Start a broker as `docker_broker` does, for callers that call `RunningBroker.stop` themselves.

    Args:
        series: the release series; the image is then ``rabbitmq:SERIES-management``.
        image: another image that behaves as the official images do; None for the official image.
    """
    require_docker()
    image = image or official_image(series)
    require_image(image)
    server = ContainerServer(f"rabbit-chx-{secrets.token_hex(6)}")
    try:
        server.create(image)
        return server.broker(image)
    except BaseException:
        server.remove()
        raise


class ContainerServer:
    """One container with fixed ports on 127.0.0.1, which `create` starts; on a network of ours its name is also its host name.

    Where ``TESTCONTAINERS_HOST_OVERRIDE`` names another address of the machine of the Docker daemon, the ports are there.
    """

    def __init__(self, name: str, network: str | None = None) -> None:
        self.name = name
        self.network = network
        self._removed = False

    def create(self, image: str, script: str = SERVE, *, more_ports: Sequence[int] = ()) -> None:
        """Start the container, whose program is a shell script; `broker` waits for it.

        `ports` has the ports that lead to the container: those of AMQP, the HTTP API, streams, and `more_ports`.
        """
        host = _published_host()
        settings = {"network": self.network, "hostname": self.name} if self.network else {}
        for attempt in range(1, _ATTEMPTS + 1):
            inside = (5672, 15672, 5552, *more_ports)
            self.ports = dict(zip(inside, free_ports(len(inside)), strict=True))
            published = {port: (host, outside) for port, outside in self.ports.items()}
            self.url, self.management_url = guest_urls(self.ports[5672], self.ports[15672], host)
            try:
                _start(image, self.name, script, published, settings)
            except Exception as error:
                self._force_removal()  # a container that did not start is there all the same
                if attempt < _ATTEMPTS and any(words in str(error) for words in _PORT_TAKEN):
                    continue
                raise errors.NoBrokerError(f"the container of {image} does not start: {error}") from error
            return

    def broker(self, image: str) -> RunningBroker:
        """Wait until the container serves, and return the broker."""
        version = self.wait()
        return RunningBroker(
            url=self.url,
            management_url=self.management_url,
            version=version,
            ring_via=("docker", "exec", self.state("{{.Id}}")[:12]),
            origin=f"container {image} (RabbitMQ {version})",
            server=self,
            stream_port=self.ports[5552],
        )

    def wait(self) -> str:
        """Wait until the container serves; return the version."""
        return wait_until_serving(
            self.url,
            self.management_url,
            timeout_s=_SERVING_TIMEOUT_S,
            running=self.is_running,
            log=self.log,
            tools=("docker", "exec", self.name),
            why_unreachable=self._why_unreachable,
        )

    def _why_unreachable(self) -> str:
        """Return why the container cannot be reached although its server listens; empty if it does not listen yet, or can be reached."""
        command = ("docker", "exec", self.name, "rabbitmq-diagnostics", "-q", "check_port_listener", "15672")
        try:
            if run_bounded(command, timeout_s=_COMMAND_TIMEOUT_S).returncode == 0:
                check_management(self.management_url)
        except errors.NoBrokerError as error:
            if not isinstance(error.__cause__, errors.UnreachableError):  # it answers by now, and refuses
                return ""
            return (
                f"the server runs and listens, and its container cannot be reached from here ({error}). If this process runs in a container "
                "itself, start that with --network host, or set TESTCONTAINERS_HOST_OVERRIDE to the Docker host, such as 172.17.0.1; or set "
                "RABBIT_CHX_TEST_URL"
            )
        except errors.RabbitChxError:  # the tool was killed
            pass
        return ""

    def log(self, lines: int = 20) -> str:
        """Return the last lines of the container's log."""
        result = run_bounded(
            ("docker", "logs", "--tail", str(lines), self.name),
            timeout_s=_COMMAND_TIMEOUT_S,
        )
        return last_lines(result.stdout + result.stderr, lines)

    def remove(self) -> None:
        """Remove the container; further calls do nothing."""
        if not self._removed:
            self._force_removal()
            self._removed = True

    def docker(self, *command: str, timeout_s: float = _COMMAND_TIMEOUT_S) -> str:
        """Run a docker command on the container, unless it was removed, and return its stdout."""
        if self._removed:
            raise errors.NoBrokerError(f"container {self.name} was stopped and removed; start another broker")
        return docker(*command, self.name, timeout_s=timeout_s)

    def is_running(self) -> bool:
        """Return whether the container runs."""
        return self.state("{{.State.Running}}") == "true"

    def state(self, template: str) -> str:
        """Return what a template of ``docker inspect`` shows."""
        return self.docker("inspect", "--format", template).strip()

    def _force_removal(self) -> None:
        with suppress(errors.NoBrokerError):  # it may not be there
            docker("rm", "--force", "--volumes", self.name)


def require_docker() -> None:
    """Check that testcontainers is installed and that a Docker daemon of this machine answers."""
    try:
        import testcontainers.core.config  # noqa: F401
    except ImportError as error:
        raise missing_extra("a broker in Docker", "testcontainers", "testing") from error
    try:
        docker("version", "--format", "{{.Server.Version}}", timeout_s=_ANSWER_TIMEOUT_S)
        host = os.environ.get("DOCKER_HOST") or docker(
            "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"
        )
    except errors.UnreachableError as error:
        raise errors.NoBrokerError(f"no Docker daemon answers: {error}") from error
    if urlsplit(host.strip()).hostname not in {None, "localhost", "127.0.0.1"}:
        raise errors.NoBrokerError(
            f"the Docker daemon at {mask(host.strip())} is on another machine; its ports cannot be reached"
        )


def official_image(series: str) -> str:
    """Return the image of a release series, such as ``4.3``; the name of an image, with a colon or a slash, stays."""
    return series if ":" in series or "/" in series else f"rabbitmq:{series}-management"


def image_version(series: str) -> str | None:
    """Return the version that the official image of a series names; None if it is not on this machine."""
    template = "{{range .Config.Env}}{{println .}}{{end}}"
    try:
        environment = docker("image", "inspect", "--format", template, official_image(series))
    except errors.UnreachableError:
        return None
    prefix = "RABBITMQ_VERSION="
    versions = [line.removeprefix(prefix) for line in environment.split() if line.startswith(prefix)]
    return versions[0] if versions else series


def require_image(image: str) -> None:
    """Check that an image is on this machine, and pull it if it is not. A pull that times out is not repeated for ten minutes."""
    from testcontainers.core.config import testcontainers_config

    image = testcontainers_config.hub_image_name_prefix + image
    with suppress(errors.NoBrokerError):
        docker("image", "inspect", "--format", "{{.Id}}", image)
        return
    timed_out = Path(tempfile.gettempdir(), f"rabbit-chx-pull-{re.sub(r'[^a-z0-9.]', '-', image)}")
    age_s = time.time() - timed_out.stat().st_mtime if timed_out.exists() else _PULL_AGAIN_AFTER_S
    if 0 <= age_s < _PULL_AGAIN_AFTER_S:
        raise errors.NoBrokerError(
            f"the image {image} is not here, and a pull timed out {age_s:.0f} s ago; to try again: docker pull {image}"
        )
    sys.stderr.write(f"rabbit_chx: pulling {image}, for at most {_PULL_TIMEOUT_S} s\n")
    try:
        docker("pull", "--quiet", image, timeout_s=_PULL_TIMEOUT_S)
    except errors.UnreachableError as error:
        if isinstance(error, errors.BrokerTimeoutError):
            with suppress(OSError):  # of another user
                timed_out.touch()
        raise errors.NoBrokerError(f"the image {image} is not here and cannot be pulled: {error}") from error


def _published_host() -> str:
    """Return the address on which ports of containers are published."""
    from testcontainers.core.config import testcontainers_config

    override = testcontainers_config.tc_host_override
    if not override:
        return "127.0.0.1"
    try:
        return socket.gethostbyname(override)
    except OSError as error:
        raise errors.NoBrokerError(f"TESTCONTAINERS_HOST_OVERRIDE is {override!r}: {error}") from None


def _start(
    image: str, name: str, script: str, ports: Mapping[int, tuple[str, int]], settings: Mapping[str, str]
) -> None:
    from testcontainers.core.container import DockerContainer

    _do_without_ryuk_if_missing()
    container = DockerContainer(image).with_name(name).with_kwargs(**settings)
    container.with_command(["sh", "-c", script])
    # with_bind_ports() would listen on all addresses of the machine.
    published: dict[str, Any] = {f"{inside}/tcp": outside for inside, outside in ports.items()}
    container.ports.update(published)
    try:
        container.start()
    finally:
        container.get_docker_client().client.close()


def _do_without_ryuk_if_missing() -> None:
    """Disable Ryuk, which removes containers when this process is killed, if its image cannot be had."""
    from testcontainers.core.config import testcontainers_config

    if testcontainers_config.ryuk_disabled:
        return
    try:
        require_image(testcontainers_config.ryuk_image)
    except errors.NoBrokerError as error:
        testcontainers_config.ryuk_disabled = True
        sys.stderr.write(f"rabbit_chx: containers stay if this process is killed: no Ryuk, since {error}\n")


def docker(*command: str, timeout_s: float = _COMMAND_TIMEOUT_S) -> str:
    """Run a docker command and return its stdout."""
    result = run_bounded(("docker", *command), timeout_s=timeout_s)
    if result.returncode:
        raise errors.NoBrokerError(f"docker {command[0]}: {last_lines(result.stderr, 3)}")
    return result.stdout


# -- Finding a broker for tests: the broker that the environment names, else one in Docker; skipping a test that lacks one


#: The beginning of what the plugin says.
PREFIX = "rabbit_chx: "
#: The broker of the running test, which the pytest plugin sets.
broker_of_test: RunningBroker | None = None
_URL = "RABBIT_CHX_TEST_URL"
_MANAGEMENT_URL = "RABBIT_CHX_TEST_MANAGEMENT_URL"
_RING_VIA = "RABBIT_CHX_TEST_RING_VIA"


@contextmanager
def find_broker() -> Iterator[RunningBroker]:
    """Find a broker for tests and examples. A broker that was started here is removed at the end.

    The first of these that is available is taken, and one line on stderr names it:

    1. the broker of ``RABBIT_CHX_TEST_URL``, with ``RABBIT_CHX_TEST_MANAGEMENT_URL`` and
       ``RABBIT_CHX_TEST_RING_VIA``, a command prefix;
    2. a container, if Docker answers and the image is there or can be pulled within 60 s.

    ``AMQP_URL`` is never read: it may be someone's production. Nothing is installed.

    Raises:
        NoBrokerError: no broker is available; the message contains what was tried, why it failed and what to do.
        InputError: a variable is malformed.
    """
    broker = _find_named_broker() or _start_own_broker()
    try:
        sys.stderr.write(f"rabbit_chx: broker for tests: {broker.origin}\n")
        yield broker
    finally:
        if broker.owned:
            broker.stop()


def broker_is_named() -> bool:
    """Return whether a variable of the environment names the broker to take."""
    return any(os.environ.get(name) for name in (_URL, _MANAGEMENT_URL, _RING_VIA))


def named_broker_in_words() -> str:
    """Return one line on the named broker, with its release if it can be used; "" if none is named. Tests report the errors."""
    try:
        broker = _find_named_broker()
    except errors.RabbitChxError:
        return f"the broker of {_URL} cannot be used"
    return broker.origin if broker else ""


def _find_named_broker() -> RunningBroker | None:
    url, management_url = (os.environ.get(name) or None for name in (_URL, _MANAGEMENT_URL))
    ring_via = os.environ.get(_RING_VIA)  # empty: the tools of this machine
    if url is None:
        if management_url or ring_via:
            raise errors.InputError(f"{_MANAGEMENT_URL} and {_RING_VIA} belong to {_URL}, which is not set")
        return None
    try:
        version = amqp_version(url)
    except errors.RabbitChxError as error:
        raise errors.NoBrokerError(f"{_URL} names a broker that cannot be used: {error}") from error
    if management_url:
        try:
            check_management(management_url)
        except errors.RabbitChxError as error:
            raise errors.NoBrokerError(f"{_MANAGEMENT_URL} cannot be used: {error}") from error
    return RunningBroker(
        url=url,
        management_url=management_url,
        version=version,
        ring_via=None if ring_via is None else _split(ring_via),
        origin=f"{mask(url)} from {_URL} (RabbitMQ {version})",
    )


def _split(ring_via: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(ring_via))
    except ValueError as error:
        raise errors.InputError(f"{_RING_VIA} is {ring_via!r}: no shell words ({error})") from None


def _start_own_broker() -> RunningBroker:
    try:
        return start_docker_broker()
    except errors.RabbitChxError as error:
        raise errors.NoBrokerError(
            f"no broker for tests. Tried:\n  {_URL}: not set\n  Docker: {error}\n"
            f"Install Docker, or set {_URL}=amqp://user:password@host:port/vhost"
        ) from error


def in_ci() -> bool:
    """Return whether ``CI`` is set to a true value, as CI services do."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def skip_unless_ci(reason: str) -> NoReturn:
    """Skip the running test; in CI fail it.

    Args:
        reason: why the test cannot run, for people.
    """
    import pytest

    if in_ci():
        pytest.fail(f"in CI this must run: {reason}", pytrace=False)
    pytest.skip(reason)


def enter_or_give_up(
    stack: ExitStack,
    broker: AbstractContextManager[RunningBroker],
    *without: type[errors.RabbitChxError],
    named: bool = False,
) -> RunningBroker:
    """Return the broker of a block; after one of these errors skip the running test in words that the plugin counts.

    In CI, and where the broker was named, the test fails.
    """
    import pytest

    try:
        return stack.enter_context(broker)
    except without as error:
        failure = f"{PREFIX}{error}"
    # After the handler, so that pytest does not print the text of the error and of its causes, too.
    if named:
        pytest.fail(failure, pytrace=False)
    skip_unless_ci(failure)


def release_is_in(version: str, releases: str) -> bool:
    """Return whether a version is in a range such as ``>=4.0,<4.3``; every version is in the range ``""``."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(releases, prereleases=True).contains(Version(version))
    except InvalidSpecifier:
        raise errors.InputError(
            f"{releases!r} is not a range of releases: pass one such as '>=4.0,<4.3'"
        ) from None
    except InvalidVersion:
        raise errors.InputError(
            f"the broker's version, {version!r}, cannot be compared with a range"
        ) from None
