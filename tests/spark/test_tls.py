"""Spark's options of TLS, against a broker that wants a certificate from each client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from pyspark.sql import DataFrame, SparkSession
from super_streams import create_super_stream
from tls_broker import TlsBroker, tls_broker

import spark_connector
from rabbit_chx.errors import AccessRefusedError, InputError, RabbitChxError, UnreachableError
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


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 2).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")


def options(mutual: TlsBroker, certificate: str, authority: str = "ca.pem") -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": mutual.amqps_port,
        "username": "guest",
        "password": "guest",
        "exchange": "x",
        "tls": True,
        "tlsCaFile": mutual.file(authority),
        "tlsCertFile": mutual.file(f"{certificate}.pem"),
        "tlsKeyFile": mutual.file(f"{certificate}.key"),
    }


def test_the_options_and_the_url_of_tls_are_equivalent(mutual: TlsBroker, frame: DataFrame) -> None:
    assert publish(frame, options(mutual, "client")).confirmed == 100
    url = {"url": mutual.amqps({}), "exchange": "x"}
    files = {name: value for name, value in options(mutual, "client").items() if name.endswith("File")}
    assert publish(frame, url | files).confirmed == 100


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_streams_are_written_and_read_over_tls(
    mutual: TlsBroker, spark: SparkSession, frame: DataFrame
) -> None:
    files = {name: str(value) for name, value in options(mutual, "client").items() if name.endswith("File")}
    to_streams = {"url": mutual.streams({}), **files}
    with closing(StreamConnection(stream_settings(mutual.streams(mutual.certified)))) as connection:
        create_super_stream(connection, "orders", ["orders-0", "orders-1"], ["0", "1"])
    placed = place_for_streams(frame, SuperStream(["orders-0", "orders-1"]))
    once = {
        "superStream": "orders",
        "delivery": "exactly-once",
        "appId": "load",
        "version": 1,
        "verify": "full",
    }
    for known in (0, 100):
        report = publish(placed, {**to_streams, **once})
        assert report.streams is not None
        assert (report.streams.known, report.streams.verified) == (known, 100)
    spark_connector.register(spark)
    rows = spark.read.format("rabbitmq").options(**to_streams, superStream="orders").load()
    assert {bytes(row.value) for row in rows.collect()} == {b"body %d" % number for number in range(100)}


def test_the_certificate_is_the_login(mutual: TlsBroker, frame: DataFrame) -> None:
    url = mutual.amqps(mutual.certified | {"auth_mechanism": "external"}).replace("guest:guest@", "x:y@")
    assert publish(frame, {"url": url, "exchange": "x"}).confirmed == 100
    with pytest.raises(AccessRefusedError):
        publish(
            frame, {"url": url.replace("auth_mechanism=external", "auth_mechanism=plain"), "exchange": "x"}
        )


@pytest.mark.parametrize(
    ("certificate", "authority", "says"),
    [
        ("client", "other-ca.pem", "the broker's certificate is not accepted"),
        ("stranger", "ca.pem", "unknown ca|lost"),
    ],
)
def test_what_is_refused(
    mutual: TlsBroker, frame: DataFrame, certificate: str, authority: str, says: str
) -> None:
    with pytest.raises(UnreachableError, match=says):
        publish(frame, options(mutual, certificate, authority))


def test_another_name_and_no_certificate(mutual: TlsBroker, frame: DataFrame) -> None:
    with pytest.raises(UnreachableError, match="the broker's certificate is not accepted"):
        publish(frame, {**options(mutual, "client"), "host": "localhost"})
    bare = {k: v for k, v in options(mutual, "client").items() if k not in {"tlsCertFile", "tlsKeyFile"}}
    with pytest.raises(RabbitChxError, match=r"certfile|lost"):
        publish(frame, bare)


def test_nothing_is_passed_over(mutual: TlsBroker, frame: DataFrame) -> None:
    for wrong, says in (
        ({"tlsVerfy": "false"}, "tlsVerify"),
        ({"tlsVerify": "no"}, "tlsVerify"),
        ({"tls": False}, "is for TLS"),
    ):
        with pytest.raises(InputError, match=says):
            publish(frame, {**options(mutual, "client"), **wrong})
    with pytest.raises(InputError, match="unknown parameter 'verfy': did you mean verify"):
        publish(frame, {"url": mutual.amqps({"verfy": "verify_none"}), "exchange": "x"})
