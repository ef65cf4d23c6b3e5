"""Limits and settings of a real broker are found out before the first change: queues, frames, metrics that are off, feature flags."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from configured_container import configured_container
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from shop import Shop

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

#: Runs a command with a file, and returns its exit code and what it says.
Run = Callable[..., tuple[int, str]]

_CONFIGURATION = b"""
frame_max = 8192
management_agent.disable_metrics_collector = true
"""
_PERMITTED = b"deprecated_features.permit.transient_nonexcl_queues = true\n"
_MASTER_LOCATOR = {"x-queue-type": "classic", "x-queue-master-locator": "client-local"}
#: An update from a release that had no quorum queues leaves their flag disabled.
_OLD_FLAGS = b"FEATURE_FLAGS=implicit_default_bindings,virtual_host_metadata\n"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Write a file, and run a command with it on a broker."""

    def run(broker: RunningBroker, command: str, text: str, *options: str) -> tuple[int, str]:
        path = tmp_path / "topology.toml"
        path.write_text(text)
        at = ("--url", broker.url, "--management-url", str(broker.management_url))
        code = main([command, str(path), *options, *at])
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return run


@pytest.fixture(scope="module", params=["4.3", "3.10"])
def small(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker with small frames, which collects no metrics; the older one has feature flags that nobody enabled.

    The newer one permits queues that are neither durable nor exclusive, which RabbitMQ 4.3 denies by default.
    """
    files = {"conf.d/90-small.conf": _CONFIGURATION}
    if request.param == "3.10":
        files["rabbitmq-env.conf"] = _OLD_FLAGS
    else:
        files["conf.d/91-permitted.conf"] = _PERMITTED
    with configured_container("", files, series=request.param) as (broker, _):
        yield broker


def ring(queues: str, owns: str = "", type_: str = "classic") -> str:
    """Return a file with a ring of these queues."""
    return (
        f"owns = [{owns}]\n[[exchanges]]\nname = 'orders'\ntype = 'x-consistent-hash'\nring = [{{ queue = '{queues}' }}]\n"
        f"[[queues]]\nname = '{queues}'\ntype = '{type_}'\n"
    )


def test_queues_beyond_the_limit_of_the_vhost_are_refused_before_the_first_change(
    shop: Shop, run: Run
) -> None:
    limit = ("vhost-limits", shop.settings.vhost, "max-queues")
    shop.management.put(*limit, body={"value": 7})
    text = "[[queues]]\nname = 'new.{1..3}'\n"  # the shop has four
    code, said = run(shop.broker, "plan", text)
    assert (code, "leaves room for 2 beside the lock of an apply" in said) == (4, True), said
    assert run(shop.broker, "apply", text, "--yes")[0] == 4
    assert len(shop.management.request("GET", "queues", shop.settings.vhost)) == 4
    shop.management.put(*limit, body={"value": 8})
    code, said = run(shop.broker, "apply", text, "--yes")
    assert code == 0, said


@pytest.mark.docker
def test_without_metrics_the_messages_of_a_queue_that_is_removed_are_counted_by_amqp(
    small: RunningBroker, run: Run
) -> None:
    assert run(small, "apply", ring("m.{1..3}"), "--yes")[0] == 0
    with pika.BlockingConnection(pika_parameters(small.url)) as connection:
        channel = connection.channel()
        channel.basic_publish("", "m.3", b"left")
        fewer = (ring("m.{1..2}", "'m.*'"), "--allow", "delete", "--allow", "moved=1", "--drain", "1")
        code, said = run(small, "apply", fewer[0], "--yes", *fewer[1:])
        assert code == 3, said
        assert channel.queue_declare("m.3", passive=True).method.message_count == 1
        channel.queue_purge("m.3")
        for _ in range(3):
            channel.basic_consume("m.3", lambda *_: None)
        _, said = run(small, "plan", fewer[0])
        assert "queue m.3 is deleted, and has 3 consumers" in said
    code, said = run(small, "apply", fewer[0], "--yes", *fewer[1:])
    assert code == 0, said
    at = ("--url", small.url, "--management-url", str(small.management_url))
    assert main(["show", "orders", *at]) == 0, "RabbitMQ 3.10 answers 500 for one exchange"
    assert main(["route", "orders", "key", *at]) == 0


@pytest.mark.docker
def test_a_record_and_arguments_that_do_not_fit_into_the_frames_of_the_broker_are_told(
    small: RunningBroker, run: Run
) -> None:
    # Records are compressed, and these names are not compressible.
    names = [secrets.token_hex(100) for _ in range(90)]
    members = ", ".join(f"{{ queue = '{name}' }}" for name in names)
    text = "[[exchanges]]\nname = 'long'\ntype = 'x-consistent-hash'\n" + f"ring = [{members}]\n"
    text += "".join(f"[[queues]]\nname = '{name}'\n" for name in names)
    code, said = run(small, "apply", text, "--yes")
    assert (code, "does not fit into a frame of 8,192 bytes" in said) == (0, True), said
    large = f"[[queues]]\nname = 'small'\n[[queues]]\nname = 'large'\narguments = {{ x-note = '{'n' * 9_000}' }}\n"
    code, said = run(small, "apply", large, "--yes")
    assert "the arguments of 'large' have" in said
    assert code != 0
    with (
        pika.BlockingConnection(pika_parameters(small.url)) as connection,
        pytest.raises(ChannelClosedByBroker),
    ):
        connection.channel().queue_declare("small", passive=True)


@pytest.mark.docker
def test_queues_whose_feature_flag_is_disabled_are_refused(small: RunningBroker, run: Run) -> None:
    code, said = run(small, "plan", ring("flag.{1..2}", type_="quorum"), "--allow", "moved=1")
    refused = "rabbitmqctl enable_feature_flag quorum_queue" in said
    assert (code, refused) == ((4, True) if small.version.startswith("3.10") else (1, False)), said


@pytest.mark.docker
@pytest.mark.parametrize(
    ("feature", "about", "arguments"),
    [
        ("transient_nonexcl_queues", "durable = false", {}),
        ("queue_master_locator", "arguments = { x-queue-master-locator = 'client-local' }", _MASTER_LOCATOR),
    ],
)
def test_a_queue_is_refused_before_the_first_change_if_the_broker_denies_its_feature(
    vhost: RunningBroker, run: Run, feature: str, about: str, arguments: dict[str, Any]
) -> None:
    """RabbitMQ 4.3 denies both by default, and the broker itself lists what it denies."""
    is_durable = "durable = false" not in about
    is_denied = Release(vhost.version).numbers >= (4, 3, 0)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        refused = pytest.raises(ConnectionClosedByBroker, match=f"541.*{feature}")
        with refused if is_denied else nullcontext():
            connection.channel().queue_declare("tried", durable=is_durable, arguments=arguments)
    text = f"[[queues]]\nname = 'first'\n[[queues]]\nname = 'short'\n{about}\n"
    code, said = run(vhost, "apply", text, "--yes")
    assert (code, f"the broker denies the deprecated feature {feature}" in said) == (
        (4, True) if is_denied else (0, False)
    ), said
    with Broker(vhost.url, vhost.management_url) as broker:
        names = {queue.name for queue in broker.topology().queues}
    assert names == (set() if is_denied else {"tried", "first", "short"})


@pytest.mark.docker
def test_a_queue_that_is_not_durable_is_declared_where_the_broker_permits_it(
    small: RunningBroker, run: Run
) -> None:
    code, said = run(small, "apply", "[[queues]]\nname = 'short'\ndurable = false\n", "--yes")
    assert code == 0, said


@pytest.mark.docker
def test_at_the_limit_of_exchanges_a_record_takes_the_place_of_the_last_one(run: Run) -> None:
    """What would repeat the apply has no place. The management API does not show this limit, so the broker's own reason is what the user sees."""
    few = {"conf.d/90-few.conf": b"cluster_exchange_limit = 20\n"}
    reason = "exchange limit of 20 is reached: delete exchanges, or raise cluster_exchange_limit"
    with configured_container("", few, series="4.3") as (broker, _):
        assert run(broker, "apply", ring("o.{1..3}"), "--yes")[0] == 0
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            with suppress(ChannelClosedByBroker):
                for number in range(20):
                    channel.exchange_declare(f"full.{number}")
        fewer = ring("o.{1..3}").replace("{ queue = 'o.{1..3}' }", "{ queue = 'o.{1..2}' }")
        code, said = run(broker, "apply", fewer, "--yes", "--allow", "moved=1")
        assert (code, f"{reason} in the broker's configuration: after an interruption" in said) == (
            0,
            True,
        ), said
        code, said = run(broker, "check", fewer)
        assert (code, "findings none" in said) == (0, True), said
        code, said = run(broker, "apply", "[[queues]]\nname = 'one'\n", "--yes")
        assert (code, f"{reason} in the broker's configuration: after an interruption" in said) == (
            0,
            True,
        ), said
        code, said = run(broker, "apply", ring("o.{1..3}"), "--yes", "--allow", "moved=1", "--no-record")
        assert code == 0, said
        code, said = run(broker, "check", ring("o.{1..3}"))
        assert (code, "another program" in said) == (3, False), said
