"""Every option is stated once. Where to connect, and as whom; no password is shown. `values.txt` has what options become, `refusals.txt` what is refused."""

from __future__ import annotations

import ast
import pickle
import re
from ast import literal_eval
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from urllib.parse import unquote

import pytest
from blocks import page
from spark_messages import options_of, schema_of
from stored_cases import cases_of_sections

import spark_connector
from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.options import Option
from rabbit_chx.publishing import Limits, Retries
from spark_connector.columns import MessageColumns
from spark_connector.options.common import ADDRESS_OPTIONS, Brokers, read_option, read_options
from spark_connector.options.read_options import QUEUE_OPTIONS, READ_OPTIONS, QueueOptions, ReadOptions
from spark_connector.options.write_options import OPTIONS, WriteOptions


@pytest.mark.parametrize("known", [READ_OPTIONS, QUEUE_OPTIONS, OPTIONS], ids=["read", "queue", "write"])
def test_every_option_has_a_name_and_a_default_that_can_be_written(known: tuple[Option, ...]) -> None:
    names = [option.spark_name.lower() for option in known]
    assert len(set(names)) == len(names)
    for option in known:
        assert option.meaning
        assert re.search(
            rf"^- `{option.spark_name}`[ :]", page("docs/reference/spark-options.md"), re.MULTILINE
        )
        if option.default_text:
            assert read_option(option, option.default_text) == option.default


def brokers_of(**given: str) -> Brokers:
    return Brokers.of(read_options(ADDRESS_OPTIONS, given))


@pytest.mark.parametrize(
    ("given", "url", "stream_ports"),
    [
        ({"url": "amqp://me@a/v , amqps://b"}, "amqp://me@a:5672/v, amqps://guest@b:5671/%2F", [5552, 5551]),
        ({"url": "amqp://h:5673"}, "amqp://guest@h:5673/%2F", [5552]),
        ({"url": "rabbitmq-stream://h:5662"}, "rabbitmq-stream://guest@h:5662/%2F", [5662]),
        ({"url": "rabbitmq-stream+tls://h"}, "rabbitmq-stream+tls://guest@h:5551/%2F", [5551]),
        ({"host": "::1", "username": "ann"}, "amqp://ann@[::1]:5672/%2F", [5552]),
        ({"host": "h", "tls": "true"}, "amqps://guest@h:5671/%2F", [5551]),
        ({"host": "h", "tls": "true", "port": "5661"}, "amqps://guest@h:5661/%2F", [5661]),
    ],
)
def test_options_become_addresses(given: dict[str, str], url: str, stream_ports: list[int]) -> None:
    brokers = brokers_of(**given)
    of_streams = Brokers.of(read_options(ADDRESS_OPTIONS, given), streams=True)
    assert brokers.masked_url.replace(":***", "") == url
    assert [address.port for address in of_streams.addresses] == stream_ports
    assert {address.protocol for address in of_streams.resolve()} == {"stream"}
    assert [address.tls for address in of_streams.addresses] == [address.tls for address in brokers.addresses]


def test_tasks_begin_with_one_address_or_another() -> None:
    brokers = brokers_of(url="rabbitmq-stream://a,rabbitmq-stream+tls://b")
    assert [address.host for address in brokers.resolve(3)] == ["b", "a"]


@pytest.mark.parametrize("password", ["℀", "[", "[x]", ",", "%2F%40%3A"])
def test_a_password_that_other_parsers_refuse_is_taken(password: str) -> None:
    (address,) = brokers_of(url=f"amqp://ann:{password}@h/v").resolve()
    assert address.password.reveal() == unquote(password)


@pytest.mark.parametrize("where", [{"host": "h", "tls": "true"}, {"url": "amqps://h"}])
def test_options_of_tls_go_with_a_host_or_an_amqps_url(where: dict[str, str]) -> None:
    (address,) = brokers_of(**where, tlsCaFile="ca.pem", tlsVerify="false").resolve()
    assert address.tls is not None
    assert (address.tls.ca_file, address.tls.verify) == ("ca.pem", False)


def test_times_of_the_url_hold_unless_an_option_is_given() -> None:
    for options, times in ({}, (7, 3.0)), ({"heartbeat": "9", "connectTimeout": "4s"}, (9, 4.0)):
        (address,) = brokers_of(url="amqp://h?heartbeat=7&connection_timeout=3000", **options).addresses
        assert (address.heartbeat_s, address.connection_timeout_s) == times


@pytest.mark.parametrize(
    ("url", "of_amqp"),
    [
        ("amqp://h:5673", ("h", 5673)),
        ("amqps://h", ("h", 5671)),
        ("rabbitmq-stream://h:5662", ("h", 5672)),
        ("rabbitmq-stream+tls://h:5661", ("h", 5671)),
    ],
)
def test_streams_have_an_address_of_amqp_on_their_host(url: str, of_amqp: tuple[str, int]) -> None:
    brokers = Brokers.of(read_options(ADDRESS_OPTIONS, {"url": url}), streams=True)
    (address,) = brokers.by_amqp.resolve()
    assert (address.host, address.port) == of_amqp
    assert (address.protocol, address.tls) == ("amqp", brokers.addresses[0].tls)


@pytest.mark.parametrize("parse", [WriteOptions.parse, ReadOptions.parse, QueueOptions.parse])
def test_an_option_that_is_given_in_two_spellings_is_refused(parse: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="options 'url' and 'URL' are both given: pass one of them"):
        parse({"url": "amqp://ann:c4nary@h", "URL": "amqp://h", "exchange": "x"})


# -- what options become, and what is refused

URL = {"url": "amqp://h"}
STREAM = {"url": "rabbitmq-stream://h", "stream": "s"}
USES: dict[str, Callable[..., object]] = {
    "addresses of a write": lambda **how: WriteOptions.parse({"exchange": "x"} | how),
    "write": lambda **how: WriteOptions.parse(URL | {"exchange": "x"} | how),
    "write into streams": lambda **how: WriteOptions.parse(URL | how),
    "read": lambda streaming=False, **how: ReadOptions.parse(STREAM | how, streaming=streaming),
    "drain": lambda **how: QueueOptions.parse(URL | how),
    "columns": lambda ddl, **how: MessageColumns.of(schema_of(ddl), options_of(**how)),
}


#: The options and the result of each case.
CASE = r"^(\{.*)\n-> (.*)"


@pytest.mark.parametrize(("use", "options", "value"), cases_of_sections(__file__, "values.txt", CASE))
def test_texts_become_the_stored_values(use: str, options: str, value: str) -> None:
    attribute, _, expected = value.partition(": ")
    assert repr(getattr(USES[use](**literal_eval(options)), attribute)) == expected


@pytest.mark.parametrize(("use", "options", "said"), cases_of_sections(__file__, "refusals.txt", CASE))
def test_what_is_refused_is_as_stored(use: str, options: str, said: str) -> None:
    with pytest.raises(RabbitChxError) as caught:
        USES[use](**literal_eval(options))
    assert f"{type(caught.value).__name__}: {caught.value}" == said
    assert "c4nary" not in said


# -- secrets


def test_the_password_is_found_where_the_task_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("c4nary\n")
    from_env, from_file, given = (
        options_of(url="amqp://ann@here/v", **{name: value})
        for name, value in {"passwordEnv": "PW", "passwordFile": str(file), "password": "c4nary"}.items()
    )
    words = "'PW' is not set in this process: set it where the executors start, or pass passwordFile$"
    with pytest.raises(InputError, match=words):  # no advice to put it into Spark's configuration
        from_env.brokers.resolve()
    monkeypatch.setenv("PW", "c4nary\n")  # as a secret that was made by `echo`
    for options in (from_env, from_file, given):
        (address,) = options.brokers.resolve()
        assert (address.username, address.password.reveal()) == ("ann", "c4nary")
        assert "c4nary" not in repr(options) + repr(address) + options.brokers.masked_url
        assert b"c4nary" not in pickle.dumps(options)
        assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    file.unlink()
    with pytest.raises(InputError, match="cannot be read here"):
        from_file.brokers.resolve()


@pytest.mark.parametrize(
    ("content", "password"),
    [(b" c4nary \n", " c4nary "), ("ü\r\n".encode(), "ü"), (b"\tc4nary", "\tc4nary"), (b" \n", " ")],
)
def test_a_password_has_no_line_ending(tmp_path: Path, content: bytes, password: str) -> None:
    (tmp_path / "pw").write_bytes(content)
    (address,) = brokers_of(url="amqp://h", passwordFile=f"{tmp_path}/pw").resolve()
    assert address.password.reveal() == password


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "is empty: write the password"), (b"\n", "is empty"), (b"\xff", "as UTF-8")]
)
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "pw").write_bytes(content)
    with pytest.raises(InputError, match=words):
        brokers_of(url="amqp://h", passwordFile=f"{tmp_path}/pw").resolve()


def test_each_option_is_used() -> None:
    package = Path(spark_connector.__file__).parent
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in package.rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    declared = {field.name for options in (WriteOptions, ReadOptions) for field in fields(options)}
    of_publisher = {
        field.name for options in (Limits, Retries) for field in fields(options)
    }  # passed together
    assert declared - of_publisher - read == set(), (
        "use the option, for example in spark_connector/writing/task_writer.py"
    )
