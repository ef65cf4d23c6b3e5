"""What is wrong with a live ring, as the commands tell it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
import pytest
from exchange_types import CHX
from found_broker import need
from pika.exceptions import AMQPError
from shop import Shop

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.testing import docker_broker

pytestmark = pytest.mark.broker


def test_a_binding_without_buckets_is_found(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("x", CHX, durable=True)
    for queue, weight in (("q1", "10"), ("q2", "2"), ("q2", "3")):
        shop.channel.queue_bind(queue, "x", weight)
    (second,) = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)["findings"]
    assert (second["kind"], second["destination"]) == ("second-binding", "q2")
    shop.channel.queue_unbind("q2", "x", "3")
    document = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)
    assert document["mismatches"] == 0
    (silent,) = (finding for finding in document["findings"] if finding["kind"] == "silent-binding")
    assert silent == {
        "kind": "silent-binding",
        "destination": "q2",
        "share": 0.0,
        "says": "q2 is bound with weight 2 and has no bucket: no message comes to it",
    }
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert f"rabbit-chx: exchange 'x': {silent['says']}\n" in capsys.readouterr().err


def test_an_exchange_to_which_nothing_is_bound(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("none", CHX, durable=True)
    nothing = "nothing is bound: every message is unroutable"
    for options in ((*shop.live, *shop.via), (*shop.live[:2], *shop.via), shop.live):
        assert main(["ring", "show", "none", *options]) == 0
        assert capsys.readouterr().err == f"rabbit-chx: exchange 'none': {nothing}\n"
    (found,) = answer("verify", "none", *shop.live, *shop.via, code=1)["findings"]
    assert (found["kind"], found["share"], found["says"]) == ("hole", 1.0, nothing)


@pytest.mark.docker
def test_holes_are_found_with_the_share_of_keys_that_goes_nowhere(
    answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    need("docker")
    says = "3 of 5 buckets without a destination: 100.000% of all keys go nowhere"
    with (
        docker_broker("3.8") as broker,
        pika.BlockingConnection(pika_parameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare("holes", CHX, durable=True)
        for queue, weight in (("q1", "1"), ("q2", "2"), ("q1", "3"), ("q3", "2")):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "holes", weight)
        channel.queue_unbind("q1", "holes", "3")
        shop = Shop(
            broker,
            Management(str(broker.management_url)),
            ConnectionSettings.from_uri(broker.url),
            channel,
        )
        assert main(["ring", "show", "holes", *shop.live[:2], *shop.via]) == 0
        shown = capsys.readouterr()
        document = answer("verify", "holes", *shop.live, *shop.via, "--count", "500", code=1)
        assert main(["verify", "holes", *shop.live, *shop.via, "--count", "500"]) == 1
    assert shown.err == f"rabbit-chx: exchange 'holes': {says}\n"
    assert document["mismatches"] == 0
    assert document["destinations"][0] == {"destination": None, "messages": 500, "predicted": 500}
    assert {(finding["kind"], finding["destination"]) for finding in document["findings"]} == {
        ("hole", None),
        ("silent-binding", "q1"),
        ("silent-binding", "q2"),
        ("silent-binding", "q3"),
    }
    assert document["findings"][0]["share"] == 1.0
    assert f"finding     hole: {says}" in capsys.readouterr().out


@pytest.mark.docker
@pytest.mark.restarts
def test_buckets_of_a_queue_that_is_gone_are_found(answer: Callable[..., Any]) -> None:
    need("docker")
    with docker_broker("4.3") as broker:
        assert broker.management_url is not None
        bound: list[tuple[str, str, bool]] = [("q1", "3", False), ("gone", "2", True), ("q2", "4", False)]
        with suppress(AMQPError), pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", CHX, durable=True)
            for queue, weight, exclusive in bound:
                channel.queue_declare(queue, durable=not exclusive, exclusive=exclusive)
                channel.queue_bind(queue, "x", weight)
            broker.restart()
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            settings = ConnectionSettings.from_uri(broker.url)
            shop = Shop(broker, Management(broker.management_url), settings, connection.channel())
            document = answer("verify", "x", *shop.live, *shop.via, "--count", "300", code=1)
    assert (document["ring"]["buckets"], document["mismatches"]) == (9, 0)
    assert [(finding["kind"], finding["destination"]) for finding in document["findings"]] == [
        ("ghost-bucket", "gone")
    ]
