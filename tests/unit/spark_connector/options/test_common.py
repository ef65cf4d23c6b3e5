"""Where to connect, and as whom; no password is shown."""

from __future__ import annotations

import pickle
from pathlib import Path
from urllib.parse import unquote

import pytest

from rabbit_chx.errors import InputError
from spark_connector.options.common import ADDRESS_OPTIONS, Brokers, read_options
from spark_connector.options.write_options import WriteOptions

URL = {"url": "amqp://ann@here/v", "exchange": "x"}


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse(options)


def test_several_urls_in_turn() -> None:
    brokers = parse(url="amqp://a/v , amqps://b", exchange="x").brokers
    assert [(address.host, address.port, address.vhost) for address in brokers.resolve()] == [
        ("a", 5672, "v"),
        ("b", 5671, "/"),
    ]
    assert [address.host for address in brokers.resolve(3)] == ["b", "a"]


@pytest.mark.parametrize("password", ["℀", "[", "[x]", ",", "%2F%40%3A"])
def test_a_password_that_other_parsers_refuse_is_taken(password: str) -> None:
    (address,) = parse(url=f"amqp://ann:{password}@h/v", exchange="x").brokers.resolve()
    assert address.password.reveal() == unquote(password)


def test_host_and_tls_become_an_address() -> None:
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


@pytest.mark.parametrize(
    ("given", "port", "tls"),
    [
        ({"url": "amqp://h:5673/v"}, 5552, False),
        ({"url": "amqps://h", "tlsCaFile": "ca.pem"}, 5551, True),
        ({"url": "rabbitmq-stream://h:5662"}, 5662, False),
        ({"url": "rabbitmq-stream+tls://h", "tlsCaFile": "ca.pem"}, 5551, True),
        ({"host": "h"}, 5552, False),
        ({"host": "h", "tls": "true", "port": "5661"}, 5661, True),
    ],
)
def test_an_address_of_streams_has_their_port_and_protocol(
    given: dict[str, str], port: int, *, tls: bool
) -> None:
    brokers = Brokers.of(read_options(ADDRESS_OPTIONS, given), streams=True)
    (address,) = brokers.resolve()
    assert (address.port, address.tls is not None, address.protocol) == (port, tls, "stream")
    assert brokers.addresses[0].protocol == "stream"


def test_a_stream_url_says_so_by_itself() -> None:
    url = "rabbitmq-stream://ann:secret@a/v,rabbitmq-stream://ann:secret@b/v"
    brokers = Brokers.of(read_options(ADDRESS_OPTIONS, {"url": url}))
    assert brokers.addresses[0].protocol == "stream"
    assert [address.host for address in brokers.addresses] == ["a", "b"]
    assert "secret" not in repr(brokers) + brokers.masked_url
    with pytest.raises(InputError, match="addresses of AMQP and of streams"):
        Brokers.of(read_options(ADDRESS_OPTIONS, {"url": f"{url},amqp://c"}))
    with pytest.raises(InputError, match=r"write rabbitmq-stream\+tls://"):
        Brokers.of(read_options(ADDRESS_OPTIONS, {"url": url, "tls": "true"}))


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
        (
            {"url": "amqp://h", "host": "h"},
            "options 'url' and 'host' are both given, and the URL has it already",
        ),
        (
            {"url": "amqp://h", "tls": "true"},
            "option 'tls': amqp://guest:.*@h:5672/%2F is without TLS; write amqps://",
        ),
        ({"url": "amqps://h", "tls": "false"}, "option 'tls' is false: amqps://.* requires TLS"),
        ({"host": "h", "tlsCaFile": "c"}, "option 'tlsCaFile' is for TLS: set tls to true"),
        ({"url": "amqp://a:c4nary@h", "password": "c4nary"}, "the URL has a password already"),
        ({"url": "amqp://a:c4nary℀@h", "password": "c4nary"}, "the URL has a password already"),
        ({"url": "amqp://a@h", "username": "b"}, "the URL has a user name already"),
        (
            {"host": "h", "password": "c4nary", "passwordEnv": "P"},
            "'password' and 'passwordEnv' are both given: pass one of them",
        ),
        ({"url": "amqp://a:c4nary@h:x"}, "AMQP URI"),
        (
            {"host": "amqp://a:c4nary@h"},
            "option 'host' is a text with an '@', which is not shown: pass a name",
        ),
        ({"host": "h:5672"}, "option 'host' is 'h:5672': pass a name or an address alone"),
        ({"host": "[::1]"}, "option 'host'"),
    ],
)
def test_a_bad_address_is_refused_without_its_password(options: dict[str, str], message: str) -> None:
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
    with pytest.raises(InputError, match="set it where the executors start, or pass passwordFile") as caught:
        parse(**URL, passwordEnv="RABBIT_PW").brokers.resolve()
    assert "executorEnv" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "password"),
    [(b" c4nary \n", " c4nary "), ("ü\r\n".encode(), "ü"), (b"\tc4nary", "\tc4nary"), (b" \n", " ")],
)
def test_a_password_file_is_used_without_its_line_ending(
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
