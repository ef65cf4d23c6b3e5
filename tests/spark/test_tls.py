"""Spark's options of TLS, against a broker that wants a certificate from each client; tests/broker/test_tls.py has what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from pyspark.sql import DataFrame, SparkSession
from super_streams import create_super_stream
from tls_broker import TlsBroker, tls_broker

from rabbit_chx import errors
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from spark_connector import place_for_streams, publish

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.docker]


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker that wants a certificate of its authority from each client."""
    with tls_broker(tmp_path_factory.mktemp("mutual"), mutual=True) as running:
        yield running


def files(mutual: TlsBroker, certificate: str = "client") -> dict[str, str]:
    names = {"tlsCaFile": "ca.pem", "tlsCertFile": f"{certificate}.pem", "tlsKeyFile": f"{certificate}.key"}
    return {option: str(mutual.file(name)) for option, name in names.items()}


def test_options_of_tls_a_url_and_the_certificate_as_login_publish(
    mutual: TlsBroker, frame: Callable[..., DataFrame]
) -> None:
    here = {"host": "127.0.0.1", "port": mutual.amqps_port, "tls": True}
    login = {"username": "guest", "password": "guest"}
    as_login = mutual.amqps(mutual.certified | {"auth_mechanism": "external"})
    for options in (
        {**here, **login, **files(mutual)},
        {"url": mutual.amqps({}), **files(mutual)},
        {"url": as_login.replace("guest:guest@", "x:y@")},
    ):
        assert publish(frame(100), {"exchange": "x", **options}).confirmed == 100
    with pytest.raises(errors.UnreachableError, match=r"unknown ca|lost"):
        publish(frame(100), {"exchange": "x", **here, **login, **files(mutual, "stranger")})


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_streams_are_written_and_read_over_tls(
    mutual: TlsBroker, spark: SparkSession, frame: Callable[..., DataFrame]
) -> None:
    to_streams = {"url": mutual.streams({}), "superStream": "orders", **files(mutual)}
    with closing(StreamConnection(stream_settings(mutual.streams(mutual.certified)))) as connection:
        create_super_stream(connection, "orders", ["orders-0", "orders-1"], ["0", "1"])
    placed = place_for_streams(frame(100), SuperStream(["orders-0", "orders-1"]))
    once = {"delivery": "exactly-once", "appId": "load", "version": 1, "verify": "full"}
    for known in (0, 100):
        report = publish(placed, {**to_streams, **once})
        assert report.streams is not None
        assert (report.streams.known, report.streams.verified) == (known, 100)
    rows = spark.read.format("rabbitmq").options(**to_streams).load()
    assert {bytes(row.value) for row in rows.collect()} == {b"body %d" % number for number in range(100)}
