"""A plan rejects what the broker would reject, or what would lose messages, before anything is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from topology_commands import Topologies

from rabbit_chx.broker import Broker
from rabbit_chx.cli import main
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release

pytestmark = pytest.mark.broker

QUEUE = '[[queues]]\nname = "first"\n'
TYPE = '[[exchanges]]\nname = "x"\ntype = "{}"\n'
LIMIT = '[[queues]]\nname = "q"\ntype = "quorum"\narguments = {{ x-delivery-limit = {} }}\n'


def rejected(topologies: Topologies, text: str) -> dict[str, Any]:
    """Return the only refusal of a plan, which `apply` refuses, too, without a change."""
    file = topologies.file(QUEUE + text)
    (refusal,) = topologies.document("plan", file, code=4)["refusals"]
    before = topologies.definitions()  # with the record of the ring, which the plan has read
    assert "Apply it with" not in topologies.run("plan", file, code=4)[0]
    topologies.run("apply", file, "--yes", "--allow-delete", "--allow-moved", "1", code=4)
    assert topologies.definitions() == before
    found: dict[str, Any] = refusal
    return found


@pytest.mark.extended
@pytest.mark.parametrize(
    ("type_", "remedy"),
    [
        ("x-random", "rabbitmq-plugins enable rabbitmq_random_exchange"),
        ("x-recent-history", "rabbitmq-plugins enable rabbitmq_recent_history_exchange"),
        ("x-jms-topic", "rabbitmq-plugins enable rabbitmq_jms_topic_exchange"),
        (
            "x-delayed-message",
            "install it, and run rabbitmq-plugins enable rabbitmq_delayed_message_exchange",
        ),
        ("x-nonsense", "install and enable the plugin that has it"),
    ],
)
def test_a_type_without_its_plugin_is_refused_with_the_plugin(
    topologies: Topologies, type_: str, remedy: str
) -> None:
    refusal = rejected(topologies, TYPE.format(type_))
    assert f"is of type {type_}, and the broker has no exchanges of this type" in refusal["message"]
    assert remedy in refusal["fix"]


def test_a_type_or_setting_of_a_later_release_is_refused(topologies: Topologies) -> None:
    release = Release(topologies.shop.broker.version)
    policy = '[[policies]]\nname = "p"\npattern = "^none$"\ndefinition = {{ {} = 60000 }}\n'
    for text, since in (
        (TYPE.format("x-local-random"), (4, 0, 0)),
        (policy.format("consumer-disconnected-timeout"), (4, 3, 0)),
    ):
        if release.numbers < since:
            assert release.version in rejected(topologies, text)["message"]
        else:
            assert topologies.document("plan", topologies.file(QUEUE + text), code=1)["refusals"] == []


def test_a_delivery_limit_that_loses_messages(topologies: Topologies) -> None:
    """RabbitMQ before 4.0 accepts it, and drops each message that is returned."""
    release = Release(topologies.shop.broker.version)
    if release.numbers >= (4, 0, 0):
        topologies.run("apply", topologies.file(LIMIT.format(-1)), "--yes")
        assert topologies.document("check", topologies.file(LIMIT.format(-1)))["findings"] == []
        return
    assert "drops each message that is returned" in rejected(topologies, LIMIT.format(-1))["message"]
    topologies.shop.channel.queue_declare(
        "q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1}
    )
    (finding,) = topologies.document("check", topologies.file(LIMIT.format(-1)), code=1)["findings"]
    assert (finding["kind"], finding["destination"]) == ("dropping-destination", "q")


def test_a_declaration_with_a_limit_that_loses_messages(topologies: Topologies) -> None:
    shop = topologies.shop
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    before = topologies.definitions()
    with Broker(shop.broker.url, shop.broker.management_url) as broker:
        if broker.release.numbers >= (4, 0, 0):
            assert len(broker.declare("y", {"y.1": 1}, queue_arguments=arguments).created) == 2
            return
        with pytest.raises(
            InputError, match=r"queue 'y\.1': x-delivery-limit is -1, .* declare the queue without it"
        ):
            broker.declare("y", {"y.1": 1}, queue_arguments=arguments)
    assert topologies.definitions() == before


def test_a_file_is_checked_for_an_older_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(LIMIT.format(-1))
    check = ("topology", "check", "--offline", str(path))
    assert [main([*check, "--release", release]) for release in ("3.10.8", "4.0.5")] == [2, 0]
    assert "declare the queue without it, since there is no limit before 4.0" in capsys.readouterr().err


def test_what_the_broker_ignores_is_in_the_plan(topologies: Topologies) -> None:
    text = TYPE.format("fanout") + "arguments = { x-delayed-exchange = true }\n"
    out, _ = topologies.run("plan", topologies.file(text), code=1)
    assert "exchange x has the argument x-delayed-exchange, which RabbitMQ" in " ".join(out.split())
