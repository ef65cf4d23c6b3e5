"""A management API that fails while a broker is read and planned: one clear error, in bounded time, and nothing changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from declared import BINDINGS
from quick_rings import quick_prefix
from scripted_api import Script, ScriptedApi, page

from rabbit_chx import Topology, errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

WANTED = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q3", weight = 2 }, { queue = "q1", weight = 10 }, { queue = "q2" }, { queue = "q4" }]
[[queues]]
name = "q{1..4}"
"""


@pytest.fixture
def api(vhost: RunningBroker) -> Iterator[ScriptedApi]:
    """An API that passes on what is not scripted, of a vhost with the exchange `x`."""
    with Broker(vhost.url) as broker:
        broker.declare("x", BINDINGS)
    with ScriptedApi(str(vhost.management_url)) as api:
        yield api


#: What the API does, and the error and the exit code of a command that come of it. The unit tests of `Management` have other faults.
FAULTS: dict[str, tuple[Callable[[ScriptedApi], Script], type[errors.RabbitChxError], str, int]] = {
    "401": (lambda _: page("401 Unauthorized"), errors.AccessRefusedError, "401: check user and password", 77),
    "503": (lambda _: page("503 Service Unavailable"), errors.BrokerRefusedError, "503: .* try again later", 77),
    "html": (lambda _: page("200 OK", b"<html>" * 2_000_000), errors.BrokerRefusedError, "is not JSON", 77),
    "closed": (lambda _: list, errors.UnreachableError, "that the management plugin is enabled", 69),
    "amqp": (lambda _: lambda: [b"AMQP\0\0\x09\x01"], errors.UnreachableError, "this is the port of AMQP", 69),
    "silent": (lambda api: lambda: api.drip(b"", 1), errors.BrokerTimeoutError, "timed out", 69),
}  # fmt: skip
SEGMENTS = ("overview", "feature-flags", "exchanges", "bindings", "policies")


def definitions(vhost: RunningBroker) -> Any:
    path = ("definitions", ConnectionSettings.from_uri(vhost.url).vhost)
    return Management(str(vhost.management_url)).request("GET", *path)


@pytest.mark.parametrize(
    ("name", "segment"), [*((name, "queues") for name in FAULTS), *(("503", segment) for segment in SEGMENTS)]
)
def test_a_faulty_api_fails_a_read_an_apply_and_commands_and_changes_nothing(
    api: ScriptedApi,
    vhost: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    name: str,
    segment: str,
) -> None:
    script, kind, says, code = FAULTS[name]
    if name == "silent":
        monkeypatch.setattr(Management.__init__, "__kwdefaults__", {"timeout_s": 0.5})
    file = tmp_path / "topology.toml"
    file.write_text(WANTED)
    live = ("--url", vhost.url, "--management-url", api.url, "--ring-via", shlex.join(quick_prefix(vhost)))
    before = definitions(vhost)
    with Broker(vhost.url, api.url) as broker:
        made = plan(Topology.from_toml(WANTED), broker.topology())
        calls: list[Callable[[], object]] = [broker.topology, lambda: broker.apply(made, allow_moved=1)]
        if segment == "exchanges":
            calls.append(lambda: broker.exchange("x"))
        api.scripts[segment] = script(api)
        for call in calls:
            with pytest.raises(kind, match=says):
                call()
        for command in (("plan",), ("apply", "--yes"), ("check",)):
            assert main(["topology", *command, str(file), *live]) == code, command
            said = capsys.readouterr()
            assert said.out == ""
            assert "Traceback" not in said.err
            assert "guest:guest" not in said.err
        api.scripts.clear()
        assert definitions(vhost) == before
        assert plan(made.wanted, broker.topology()).checksum == made.checksum  # it can go on


def test_a_policy_that_the_api_refuses(api: ScriptedApi, vhost: RunningBroker) -> None:
    """The real one says what is wrong with it."""
    text = "[[policies]]\nname = 'p'\npattern = '\\p{Nope}'\ndefinition = { max-length = 1 }\n"
    with Broker(vhost.url, api.url) as broker:
        made = plan(Topology.from_toml(text), broker.topology())
        with pytest.raises((errors.BrokerRefusedError, errors.ApplyError), match=r"400.*pattern"):
            broker.apply(made, allow_moved=1)


def test_an_api_of_another_cluster_is_refused(api: ScriptedApi, vhost: RunningBroker) -> None:
    for told, says in (
        (
            {"rabbitmq_version": vhost.version, "cluster_name": "rabbit@elsewhere"},
            r"amqp://guest:\*\*\*@.* is rabbit@.*, and http:.* is rabbit@elsewhere: pass",
        ),
        (
            {"rabbitmq_version": "3.12.1"},
            rf"is RabbitMQ {vhost.version}, and http:.* is RabbitMQ 3\.12\.1: pass",
        ),
    ):
        api.scripts["overview"] = page("200 OK", told)
        with pytest.raises(errors.MismatchError, match=says), Broker(vhost.url, api.url) as broker:
            pytest.fail(f"{broker.release} is open")
    api.scripts.clear()
    with Broker(vhost.url, api.url) as broker:  # it becomes another one while the broker is open
        made = plan(Topology.from_toml(WANTED), broker.topology())
        api.scripts["overview"] = page("200 OK", {"rabbitmq_version": "4.3.6", "cluster_name": "b"})
        for call in (broker.topology, lambda: broker.apply(made, allow_moved=1)):
            with pytest.raises(errors.MismatchError, match="is b: pass the URLs of one broker"):
                call()


def test_answers_that_no_broker_gives_are_refused(api: ScriptedApi, vhost: RunningBroker) -> None:
    with Broker(vhost.url, api.url) as broker:
        told = {"rabbitmq_version": "new", "cluster_name": broker.topology().cluster}
        api.scripts["overview"] = page("200 OK", told)
        with pytest.raises(errors.BrokerRefusedError, match="names the version new"):
            broker.topology()
        api.scripts.clear()
        api.scripts["exchanges"] = page("200 OK", [{"name": "x", "type": 5}])
        with pytest.raises(errors.BrokerRefusedError, match=r"is not a list of objects with name, type"):
            broker.topology()
        api.scripts["exchanges"] = page("200 OK", [{"name": "x", "type": "t", "arguments": {"n": 1 << 64}}])
        topology = broker.topology()
        assert not topology.exchanges
        left_out = topology.facts.left_out
        assert any("x" in line.split() or "'x'" in line for line in left_out), left_out


def test_many_queues_come_in_one_answer(api: ScriptedApi, vhost: RunningBroker) -> None:
    """The broker pages only where it is asked to, by 100 then; a list of pages would be read as a lack of queues."""
    with Broker(vhost.url, api.url) as broker:
        broker.declare("y", [(f"many.{n}", 1) for n in range(120)])
        assert len(broker.topology().queues) == 123
