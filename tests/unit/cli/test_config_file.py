"""The configuration file of rabbitmqadmin 2."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbit_chx.amqp import ConnectionSettings, TlsSettings
from rabbit_chx.amqp.management_url import ManagementUrl
from rabbit_chx.cli.config_file import NodeSettings, read_node
from rabbit_chx.errors import InputError

CANARY = "c4n@ry%"
TOML = f"""
[default]
hostname = "here"
username = "ann"
password = "{CANARY}"

[prod]
hostname = "prod.example.com"
port = 15673
username = "admin"
password = "{CANARY}"
virtual_host = "shop/eu"
scheme = "https"
non_interactive = true

[prod.rabbit_chx]
ring_via = "kubectl exec rabbit-0 --"
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Writes a file that nobody else may read, and returns its path."""

    def write(text: str, mode: int = 0o600) -> str:
        path = tmp_path / "rabbitmqadmin.conf"
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


def read(path: str, node: str | None = None) -> NodeSettings:
    """The settings of a section that is there."""
    found = read_node(path, node)
    assert found is not None
    return found


def test_a_section_gives_both_addresses_and_the_login(
    file: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(TOML)
    assert read(path).url == "amqp://ann:c4n%40ry%25@here:5672/%2F"
    assert read(path).management_url == "http://ann:c4n%40ry%25@here:15672"
    assert read(path).ring_via is None
    prod = read(path, "prod")
    assert prod.url == "amqps://admin:c4n%40ry%25@prod.example.com:5671/shop%2Feu"
    assert prod.management_url == "https://admin:c4n%40ry%25@prod.example.com:15673"
    assert prod.ring_via == "kubectl exec rabbit-0 --"
    assert capsys.readouterr().err == ""
    assert CANARY not in repr(prod)


@pytest.mark.parametrize(
    ("section", "url", "management_url"),
    [
        ("", "amqp://guest:guest@localhost:5672/%2F", "http://guest:guest@localhost:15672"),
        ("tls = true", "amqps://guest:guest@localhost:5671/%2F", "https://guest:guest@localhost:15671"),
        (
            'base_uri = "https://h:443/ignored"',
            "amqps://guest:guest@h:5671/%2F",
            "https://guest:guest@h:443",
        ),
        (
            'base_uri = "http://u:p%40@h"\nusername = "ann"',
            "amqp://ann:p%40@h:5672/%2F",
            "http://ann:p%40@h:15672",
        ),
        (
            'hostname = "::1"\n[default.rabbit_chx]\namqp_port = 5673',
            "amqp://guest:guest@[::1]:5673/%2F",
            "http://guest:guest@[::1]:15672",
        ),
        (
            'username = "ann"\nvirtual_host = "v"\n[default.rabbit_chx]\namqp_url = "amqps://other?heartbeat=5"',
            "amqps://ann:guest@other/v?heartbeat=5",
            "http://ann:guest@localhost:15672",
        ),
        (
            'virtual_host = "v"\n[default.rabbit_chx]\namqp_url = "amqp://u:p@other/w"',
            "amqp://u:p@other/w",
            "http://guest:guest@localhost:15672",
        ),
        ('path_prefix = "/api"', "amqp://guest:guest@localhost:5672/%2F", "http://guest:guest@localhost:15672"),
        (
            'path_prefix = "/mq/api"',
            "amqp://guest:guest@localhost:5672/%2F",
            "http://guest:guest@localhost:15672/mq",
        ),
        (
            'path_prefix = "/mq"',
            "amqp://guest:guest@localhost:5672/%2F",
            "http://guest:guest@localhost:15672/mq",
        ),
    ],
)  # fmt: skip
def test_what_is_absent_has_a_default(
    file: Callable[..., str], section: str, url: str, management_url: str
) -> None:
    found = read(file(f"[default]\n{section}\n"))
    assert (found.url, found.management_url) == (url, management_url)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[default]\nport = "x c4n@ry%"', "section [default], key port: this is a number from 1 to 65535"),
        ("[default]\nport = 0", "key port: this is a number from 1 to 65535"),
        ("[default]\nport = true", "key port: this is a number"),
        ("[default]\nport = 1\nhostname = 5", "key hostname: this is a text; in TOML it has quotes"),
        ("[default]\npassword = 123456", "key password: this is a text; in TOML it has quotes"),
        ('[default]\ntls = "c4n@ry%"', "key tls: this is true or false"),
        ('[default]\nbase_uri = "c4n@ry%"', "key base_uri: this is http://host:port"),
        ('[default]\nbase_uri = "http://u:c4n@ry%@h:port"', "key base_uri: this is http://host:port"),
        ('[default.rabbit_chx]\namqp_url = "http://c4n@ry%"', "key amqp_url: this is amqp://host:5672"),
        ('[default]\nvirtual-host = "c4n@ry%"', "key virtual-host: this key is written virtual_host"),
        (
            '[default]\nring-via = "c4n@ry%"',
            "key ring-via: this key belongs in the section [default.rabbit_chx]",
        ),
        (
            '[default.rabbit_chx]\nring-via = "c4n@ry%"',
            "key ring-via: the keys of [default.rabbit_chx] are amqp_url",
        ),
        (
            '[default]\nrabbit_chx = "c4n@ry%"',
            "key rabbit_chx: the keys of [default.rabbit_chx] are amqp_url",
        ),
        ('[default]\nvhost = "c4n@ry%"', "key vhost: this key is written virtual_host"),
        ("[default]\nssl = true", "key ssl: this key is written tls"),
        ('[default]\nport = "15672"', "key port: this is a number from 1 to 65535"),
        ('[default]\nhostname = "h"\npassword = c4n@ry%%', "line 3 is not TOML; texts have quotes"),
        ("password = c4n@ry%", "is no configuration file of rabbitmqadmin 2: line 1 is not TOML"),
        ("[other]\n", "has no section [default]: give --node other"),
        ("", "is empty: add one, such as [default]"),
    ],
)
def test_an_error_names_file_section_and_key_and_no_value(
    file: Callable[..., str], text: str, words: str
) -> None:
    path = file(text)
    with pytest.raises(InputError) as caught:
        read_node(path, None)
    assert path in str(caught.value)
    assert words in str(caught.value)
    assert "c4n" not in str(caught.value)
    assert "123456" not in str(caught.value)


def test_a_section_that_is_named_has_to_be_there(file: Callable[..., str]) -> None:
    with pytest.raises(InputError, match=r"no section \[test\]: give --node default, --node prod"):
        read_node(file(TOML), "test")


def test_without_a_name_the_file_of_rabbitmqadmin_is_taken_if_it_is_there(
    file: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_node(None, None) is None
    with pytest.raises(
        InputError, match=r"--node prod is a section of ~/.rabbitmqadmin.conf, which cannot be read"
    ):
        read_node(None, "prod")
    Path(file("[other]\n")).rename(tmp_path / ".rabbitmqadmin.conf")
    assert read_node(None, None) is None
    Path(file(TOML)).rename(tmp_path / ".rabbitmqadmin.conf")
    for found in (read_node(None, None), read_node("~/.rabbitmqadmin.conf", "default")):
        assert found is not None
        assert "@here:" in found.url


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(InputError, match=rf"--config {path} cannot be read: .*; give the configuration file"):
        read_node(path, None)


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin1"
    path.write_bytes(b'[default]\npassword = "\xe9"')
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_node(str(path), None)


@pytest.mark.skipif(os.name != "posix", reason="the modes of files are those of POSIX")
def test_a_password_that_others_may_read_is_said(
    file: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    read_node(path := file(TOML, 0o640), None)
    assert capsys.readouterr().err == (
        f"rabbit-chx: {path} holds a password, and others may read it: run chmod 600 {path}\n"
    )
    read_node(file("[default]\nhostname = 'h'\n", 0o644), None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["[default]\nport = " + "9" * 5_000, "x = " + "[" * 3_000])
def test_what_the_parser_of_toml_cannot_take_is_refused(file: Callable[..., str], text: str) -> None:
    with pytest.raises(InputError, match="rabbitmqadmin"):
        read_node(file(text), "default")


def test_the_files_of_tls_are_those_of_both_urls(file: Callable[..., str]) -> None:
    new = "ca_certificate_bundle_path = '/c a.pem'\nclient_certificate_file_path = '/me.pem'\nclient_private_key_file_path = '/k'"
    node = read(file(f"[default]\ntls = true\n{new}"))
    files = TlsSettings(ca_file="/c a.pem", cert_file="/me.pem", key_file="/k")
    assert ConnectionSettings.from_uri(node.url).tls == files
    assert ManagementUrl.of(node.management_url).tls == files
    plain = read_node(file(f"[default]\n{new}"), None)
    assert plain is not None
    assert "?" not in plain.url + plain.management_url
