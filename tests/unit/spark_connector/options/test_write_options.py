"""Options: every one is read, refused in words, and shows no password."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing
from spark_connector.options.option_table import OPTIONS
from spark_connector.options.write_options import WriteOptions

if TYPE_CHECKING:
    from pathlib import Path

RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])
URL = {"url": "amqp://ann@here/v", "exchange": "x"}


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse(options)


def test_the_defaults_of_the_table_are_those_of_the_value() -> None:
    given = parse(url="amqp://here", exchange="x")
    assert given == WriteOptions(given.brokers, "x")


def test_names_in_any_case_and_what_spark_adds() -> None:
    options = WriteOptions.parse(
        {"URL": "amqp://here", "eXchange": "x", "maxinflight": "7", "path": "p", "checkpointLocation": "c"}
    )
    assert options.max_in_flight == 7


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("confirmTimeout", "90", "confirm_timeout_s", 90.0),
        ("confirmTimeout", "1.5 s", "confirm_timeout_s", 1.5),
        ("blockedTimeout", "5m", "blocked_timeout_s", 300.0),
        ("reconnectBackoff", "250ms", "reconnect_backoff_s", 0.25),
        ("maxInFlightBytes", "64KiB", "max_in_flight_bytes", 65_536),
        ("maxMessageBytes", " 2m ", "max_message_bytes", 2 << 20),
        ("maxMessageBytes", "1000", "max_message_bytes", 1000),
        ("mandatory", "FALSE", "mandatory", False),
        ("ordering", "per-key", "keep_order", True),
        ("badRows", "skip", "skip_bad_rows", True),
        ("onUnroutable", "Skip", "skip_unroutable", True),
        ("headersConst", '{"tenant": "a", "n": 1}', "headers", {"tenant": "a", "n": 1}),
        ("ring", RING.to_json(), "ring", RING),
        ("routingKey", " k ", "routing_key", " k "),
        ("maxReconnects", "0", "max_reconnects", 0),
        ("reconnectTimeout", "5m", "reconnect_timeout_s", 300.0),
        ("connectionName", "job {stage}/{partition}", "connection_name", "job {stage}/{partition}"),
    ],
)
def test_texts_become_values(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(parse(**URL, **{name: text}), attribute) == value


def test_a_ring_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ring.json"
    file.write_text(RING.to_json())
    assert parse(**URL, ring=str(file)).ring == RING


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchnage": "y"}, r"unknown option 'exchnage': did you mean 'exchange'\?"),
        ({"quorum": "y"}, r"unknown option 'quorum': known are url, host, "),
        ({"confirmTimeout": "0"}, "option 'confirmTimeout' is 0: give more than 0 seconds"),
        (
            {"confirmTimeout": "1 day"},
            "option 'confirmTimeout' is '1 day': give seconds, as 60 or with a unit",
        ),
        ({"maxInFlightBytes": "8MB"}, "option 'maxInFlightBytes' is '8MB': give bytes, as 65536 or"),
        ({"maxInFlight": "0"}, "option 'maxInFlight' is '0': give a whole number, 1 or more"),
        ({"mandatory": "yes"}, "option 'mandatory' is 'yes': give true or false"),
        ({"badRows": "drop"}, "option 'badRows' is 'drop': give 'fail' or 'skip'"),
        ({"headersConst": "[1]"}, r"option 'headersConst' is '\[1\]': give a JSON object"),
        ({"headersConst": '{"a": 1.5}'}, "the header 'a' is a float: give a text"),
        ({"headersConst": '{"CC": "k"}'}, "the header 'CC' gives RabbitMQ further routing keys"),
        ({"headersConst": '{"a": 9223372036854775808}'}, "option 'headersConst': .* more than 64 bits"),
        ({"headersConst": '{"' + "n" * 256 + '": 1}'}, "option 'headersConst': .*255"),
        ({"headersConst": '{"a": "\\ud800"}'}, "option 'headersConst': "),
        (
            {"headersConst": '{"a": "' + "b" * 100_000 + '"}'},
            "'headersConst' is 100,011 bytes long, and AMQP",
        ),
        ({"headersConst": "[" * 100_000}, r"option 'headersConst' is '\[{60}'\.\.\.: give a JSON object"),
        (
            {"heartbeat": "65536"},
            "option 'heartbeat' is 65536 seconds: AMQP has whole ones only, up to 65535",
        ),
        (
            {"connectTimeout": "0"},
            "option 'connectTimeout' is 0 seconds: give more than 0, and at most 86400",
        ),
        ({"connectTimeout": "25h"}, "option 'connectTimeout' is 90000 seconds: give more than 0"),
        ({"heartbeat": "9" * 400}, "option 'heartbeat' is '9{60}'...: give seconds"),
        ({"heartbeat": "500ms"}, "option 'heartbeat' is 0.5 seconds: AMQP has whole ones only"),
        (
            {"ring": "/no/such.json"},
            "option 'ring' is '/no/such.json': it is no JSON object, and cannot be read",
        ),
        ({"localityMap": '{"q1": "a:1"}'}, "option 'localityMap' needs the option 'ring'"),
        ({"localityMap": '{"q1": "a"}', "ring": RING.to_json()}, "'q1' is at 'a': give 'host:port'"),
        ({"ring": "{}"}, "option 'ring': this JSON is no ring"),
        (
            {"ring": "amqp://a:c4nary@h"},
            "option 'ring' is a text with an '@', which is not shown: it is no JSON",
        ),
        (
            {"localityMap": '{"q1": "amqp://a:c4nary@h:5672"}', "ring": RING.to_json()},
            "'q1' is at a text with an '@', which is not shown: give 'host:port'",
        ),
        ({"connectionName": "{user}"}, "in braces must be one of {app}, {stage}"),
        ({"connectionName": "{partition:99999999999}"}, "in braces must be one of {app}, {stage}"),
        ({"connectionName": "{app!r}"}, "in braces must be one of {app}, {stage}"),
        ({"connectionName": "{app"}, "in braces must be one of {app}, {stage}"),
        ({"reportPath": "/no/such/r.json"}, "its folder does not exist on the driver"),
        ({"exchange": "é" * 128}, "AMQP allows 255 bytes"),
        ({"exchange": ""}, "option 'exchange' is missing: name the exchange to publish to"),
    ],
)
def test_bad_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        WriteOptions.parse({**URL, **options})
    assert "c4nary" not in str(caught.value)


# -- where to


def test_several_urls_in_turn() -> None:
    brokers = parse(url="amqp://a/v , amqps://b", exchange="x").brokers
    assert [(one.host, one.port, one.vhost) for one in brokers.resolve()] == [
        ("a", 5672, "v"),
        ("b", 5671, "/"),
    ]
    assert [one.host for one in brokers.resolve(3)] == ["b", "a"]


@pytest.mark.parametrize("password", ["℀", "[", "[x]", ",", "%2F%40%3A"])
def test_passwords_of_urls_that_other_parsers_refuse(password: str) -> None:
    (address,) = parse(url=f"amqp://ann:{password}@h/v", exchange="x").brokers.resolve()
    assert address.password.reveal() == unquote(password)


def test_host_and_port_with_tls() -> None:
    given = parse(host="h", tls="true", tlsCaFile="ca.pem", tlsVerify="false", username="ann", exchange="x")
    (address,) = given.brokers.resolve()
    assert (address.host, address.port, address.vhost, address.username) == ("h", 5671, "/", "ann")
    assert address.tls is not None
    assert (address.tls.ca_file, address.tls.verify) == ("ca.pem", False)


def test_host_may_be_an_ipv6_address() -> None:
    (address,) = parse(host="::1", exchange="x").brokers.resolve()
    assert address.host == "::1"


def test_tls_options_go_with_amqps_urls() -> None:
    (address,) = parse(url="amqps://h", tlsCaFile="ca.pem", exchange="x").brokers.resolve()
    assert address.tls is not None
    assert address.tls.ca_file == "ca.pem"


def test_times_of_the_url_hold_unless_an_option_is_given() -> None:
    url = "amqp://h?heartbeat=7&connection_timeout=3000"
    (address,) = parse(url=url, exchange="x").brokers.resolve()
    assert (address.heartbeat_s, address.connection_timeout_s) == (7, 3.0)
    (address,) = parse(url=url, exchange="x", heartbeat="9", connectTimeout="4s").brokers.resolve()
    assert (address.heartbeat_s, address.connection_timeout_s) == (9, 4.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'url' is missing"),
        ({"url": "amqp://h", "host": "h"}, "options 'url' and 'host': the URL has it already"),
        (
            {"url": "amqp://h", "tls": "true"},
            "option 'tls': amqp://guest:.*@h:5672/%2F is without TLS; write amqps://",
        ),
        ({"url": "amqps://h", "tls": "false"}, "option 'tls' is false: amqps://.* says TLS"),
        ({"host": "h", "tlsCaFile": "c"}, "option 'tlsCaFile' is for TLS: set tls to true"),
        ({"url": "amqp://a:c4nary@h", "password": "c4nary"}, "the URL has a password already"),
        ({"url": "amqp://a:c4nary℀@h", "password": "c4nary"}, "the URL has a password already"),
        ({"url": "amqp://a@h", "username": "b"}, "the URL has a user name already"),
        (
            {"host": "h", "password": "c4nary", "passwordEnv": "P"},
            "'password' and 'passwordEnv': give one of them",
        ),
        ({"url": "amqp://a:c4nary@h:x"}, "AMQP URI"),
        (
            {"host": "amqp://a:c4nary@h"},
            "option 'host' is a text with an '@', which is not shown: give a name",
        ),
        ({"host": "h:5672"}, "option 'host' is 'h:5672': give a name or an address alone"),
        ({"host": "[::1]"}, "option 'host'"),
    ],
)
def test_bad_addresses(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        WriteOptions.parse({"exchange": "x", **options})
    assert "c4nary" not in str(caught.value)


# -- secrets


def test_the_password_is_found_where_the_task_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from_env = parse(**URL, passwordEnv="RABBIT_PASSWORD")
    with pytest.raises(InputError, match="'RABBIT_PASSWORD' is not set in this process"):
        from_env.brokers.resolve()
    monkeypatch.setenv("RABBIT_PASSWORD", "c4nary")
    with_password = {**URL, "password": "c4nary"}
    file = tmp_path / "password"
    file.write_text("c4nary\n")
    from_file = parse(**URL, passwordFile=str(file))
    for options in (from_env, from_file, parse(**with_password)):
        (address,) = options.brokers.resolve()
        assert (address.username, address.password.reveal()) == ("ann", "c4nary")
        assert "c4nary" not in repr(options) + repr(address) + options.brokers.masked_url
        assert b"c4nary" not in pickle.dumps(options)
        assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    file.unlink()
    with pytest.raises(InputError, match="cannot be read here"):
        from_file.brokers.resolve()


def test_no_error_advises_to_put_the_password_into_sparks_configuration() -> None:
    with pytest.raises(InputError, match="set it where the executors start, or give passwordFile") as caught:
        parse(**URL, passwordEnv="RABBIT_PW").brokers.resolve()
    assert "executorEnv" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "password"),
    [(b" c4nary \n", " c4nary "), ("ü\r\n".encode(), "ü"), (b"\tc4nary", "\tc4nary"), (b" \n", " ")],
)
def test_a_password_file_is_taken_as_it_is_but_for_the_end_of_the_line(
    tmp_path: Path, content: bytes, password: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    (address,) = parse(**URL, passwordFile=str(file)).brokers.resolve()
    assert address.password.reveal() == password


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty: write the password"), (b"\n", "is empty"), (b"\xff", "as UTF-8")],
)
def test_password_files_that_hold_none(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        parse(**URL, passwordFile=str(file)).brokers.resolve()


def test_every_option_is_in_the_table_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.meaning and option.group for option in OPTIONS)
