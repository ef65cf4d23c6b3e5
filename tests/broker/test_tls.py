"""TLS with a private authority, one-way and mutual, by every way to a broker, against the broker's own listeners."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pika
import pytest
from tls_broker import OTHER_NAME, TlsBroker, tls_broker

from rabbit_chx import Broker, ConsumerGroup, Retries, StreamPublisher, StreamReader
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.errors import InputError, RabbitChxError, UnreachableError
from rabbit_chx.publishing import Publisher, SharedPublisher
from rabbit_chx.streams import ReadLimits

if TYPE_CHECKING:
    Way = Callable[[str], object]

pytestmark = [pytest.mark.broker, pytest.mark.docker]


@pytest.fixture(scope="module")
def one_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker that takes clients without a certificate."""
    with tls_broker(tmp_path_factory.mktemp("one-way"), mutual=False) as found:
        yield found


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker that wants a certificate of its authority from each client."""
    with tls_broker(tmp_path_factory.mktemp("mutual"), mutual=True) as found:
        yield found


def by_pika(url: str) -> object:
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        return connection.channel().queue_declare("q", passive=True)


def by_broker(url: str) -> object:
    with Broker(url) as broker:
        return broker.release


def by_group(url: str) -> object:
    async def opened() -> object:
        async with ConsumerGroup(url, ["q"], member="one") as group:
            return group

    return asyncio.run(asyncio.wait_for(opened(), 60))


def by_publisher(url: str) -> object:
    with Publisher(url, "x") as publisher:
        return publisher.publish_many(["k"], ["b"])


def by_shared_publisher(url: str) -> object:
    with SharedPublisher(url, "x", retries=Retries(reconnect_timeout_s=5)) as publisher:
        publisher.submit("k", "b").result(30)
        return publisher.stats()


def by_stream_publisher(url: str) -> object:
    with StreamPublisher(url, stream="s") as publisher:
        return publisher.publish_many(["k"], ["b"])


def by_stream_reader(url: str) -> object:
    with StreamReader(url, "s", limits=ReadLimits(timeout_s=6)) as reader:
        return [row for batch in reader for row in batch["value"]]


def by_http(url: str) -> object:
    return Management(url).request("GET", "overview")


BY_AMQP: tuple[Way, ...] = (
    by_pika,
    by_broker,
    by_group,
    by_publisher,
    by_shared_publisher,
)
BY_STREAMS: tuple[Way, ...] = (by_stream_publisher, by_stream_reader)
ALL: tuple[Way, ...] = (*BY_AMQP, *BY_STREAMS, by_http)
WAYS = pytest.mark.parametrize("way", ALL)


def url_for(way: Way, broker: TlsBroker, parameters: dict[str, str], host: str = "127.0.0.1") -> str:
    url = broker.https if way is by_http else broker.streams if way in BY_STREAMS else broker.amqps
    return url(parameters, host)


def refusal(way: Way, url: str) -> str:
    """The error of a way that is refused. pika itself has errors of its own."""
    kinds: Any = (pika.exceptions.AMQPError, ssl.SSLError) if way is by_pika else UnreachableError
    with pytest.raises(kinds) as caught:
        way(url)
    return str(caught.value) + repr(caught.value)


@WAYS
def test_the_right_authority_and_name_are_enough(one_way: TlsBroker, way: Way) -> None:
    for parameters in (one_way.trusted, one_way.certified, {"verify": "verify_none"}):
        assert way(url_for(way, one_way, parameters))
    for name in ("disable", OTHER_NAME)[
        : 1 if way is by_group else 2
    ]:  # aio-pika cannot look for another name
        parameters = one_way.trusted | {"server_name_indication": name}
        assert way(url_for(way, one_way, parameters, "localhost"))


@pytest.mark.slow
@WAYS
def test_another_authority_or_name_is_refused(one_way: TlsBroker, way: Way) -> None:
    """Verification is the default."""
    for parameters in ({}, {"cacertfile": one_way.file("other-ca.pem")}, {"verify": "verify_peer"}):
        said = refusal(way, url_for(way, one_way, parameters))
        assert way is by_pika or "the broker's certificate is not accepted" in said
        assert "certificate verify failed" in said or "cacertfile" in said
    said = refusal(way, url_for(way, one_way, one_way.trusted, "localhost"))
    assert way is by_pika or "server_name_indication" in said
    url = url_for(way, one_way, one_way.trusted | {"server_name_indication": "other.test"})
    if way is by_group:
        with pytest.raises(InputError, match="aio-pika cannot follow server_name_indication"):
            way(url)
    else:
        refusal(way, url)


@WAYS
def test_a_client_is_asked_for_its_certificate(mutual: TlsBroker, way: Way) -> None:
    assert way(url_for(way, mutual, mutual.certified))
    for parameters in (mutual.trusted, mutual.strange):
        refusal(way, url_for(way, mutual, parameters))


@pytest.mark.parametrize("way", [by_publisher, by_broker, by_http])
def test_a_missing_client_certificate_is_reported(mutual: TlsBroker, way: Way) -> None:
    url = url_for(way, mutual, mutual.trusted)
    # The system may drop the broker's alert, where the broker has closed the connection before we read.
    assert any("does not accept our certificate" in refusal(way, url) for _ in range(50))


@pytest.mark.parametrize("way", [*BY_AMQP, *BY_STREAMS])
def test_the_certificate_is_the_login(mutual: TlsBroker, way: Way) -> None:
    url = url_for(way, mutual, mutual.certified | {"auth_mechanism": "external"})
    assert way(url.replace("guest:guest@", "nobody:wrong@"))
    with pytest.raises((pika.exceptions.AMQPError, RabbitChxError)):
        way(url_for(way, mutual, mutual.certified).replace("guest:guest@", "nobody:wrong@"))


def test_a_command_reads_a_ring_with_a_client_certificate(
    mutual: TlsBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ("--url", mutual.amqps(mutual.certified), "--management-url")
    address = mutual.https(mutual.certified)
    for url in (address, address.replace("guest:guest@", "")):
        assert main(["show", "x", *live, url]) == 3, capsys.readouterr()  # nothing shows its order
    assert main(["show", "x", *live, mutual.https(mutual.trusted)]) not in {0, 3}
