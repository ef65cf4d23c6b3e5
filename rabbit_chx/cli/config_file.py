"""The configuration file of rabbitmqadmin: the addresses and the login of a broker, kept out of the list of processes.

rabbitmqadmin 2 reads TOML (rabbitmqadmin-ng v2.29.0, ``src/config.rs``). The keys that are ours are in a table within that of a
broker. The INI file of rabbitmqadmin 1 is not read: its keys have other names, and an error says which.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlencode, urlsplit

from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError

#: Where rabbitmqadmin looks for the file, and in which section, where it is not told.
DEFAULT_FILE = "~/.rabbitmqadmin.conf"
DEFAULT_NODE = "default"

#: The keys of rabbitmqadmin 2, then what rabbitmqadmin 1 calls some of them, then ours.
_KEYS = (
    "base_uri",
    "scheme",
    "tls",
    "hostname",
    "port",
    "path_prefix",
    "username",
    "password",
    "virtual_host",
    "ca_certificate_bundle_path",
    "client_certificate_file_path",
    "client_private_key_file_path",
)
_OLD_NAMES = {
    "ssl": "tls",
    "vhost": "virtual_host",
    "ssl_ca_cert_file": "ca_certificate_bundle_path",
    "ssl_cert_file": "client_certificate_file_path",
    "ssl_key_file": "client_private_key_file_path",
}
_OURS = ("amqp_url", "amqp_port", "ring_via")
#: The table of ours within that of a broker: [NAME.rabbit_chx].
_BESIDE = "rabbit_chx"
_SECRET = ("base_uri", "password", "amqp_url")
#: The files of TLS, and the parameters of a URL that name them.
_TLS_FILES = {
    "ca_certificate_bundle_path": "cacertfile",
    "client_certificate_file_path": "certfile",
    "client_private_key_file_path": "keyfile",
}
_AT = re.compile(r"\(?at (line \d+|end of document)")


@dataclass(frozen=True, slots=True, repr=False)
class NodeSettings:
    """What a section of the file says about a broker.

    Attributes:
        where: the file and the section, for messages.
        url: the AMQP URI, with login and vhost.
        management_url: the URL of the HTTP API, with login.
        ring_via: the command prefix that reaches rabbitmqctl; None where it is not said.
    """

    where: str
    url: str
    management_url: str
    ring_via: str | None

    def __repr__(self) -> str:
        return f"NodeSettings({self.where!r})"


def read_node(path: str | None, node: str | None) -> NodeSettings | None:
    """Read the section of a broker. Where the file holds a password and others may read it, a line on stderr says so.

    Args:
        path: the file; None for that of rabbitmqadmin, if it is there.
        node: the section; None for ``default``.

    Returns:
        The settings; None where neither was given and there is no such file or section.

    Raises:
        InputError: the file cannot be read, or does not have the section, or a key has a value that cannot be used. No
            value is in the message.
    """
    file = Path(DEFAULT_FILE if path is None else path)
    try:
        file = file.expanduser()
        text, mode = file.read_text(encoding="utf-8"), file.stat().st_mode
    except (OSError, RuntimeError, ValueError) as error:  # no home is a RuntimeError, no UTF-8 a ValueError
        if path is None and node is None and isinstance(error, OSError | RuntimeError):
            return None
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        option = f"--config {path}" if path else f"--node {node} is a section of {DEFAULT_FILE}, which"
        raise InputError(
            f"{option} cannot be read: {why}; give the configuration file of rabbitmqadmin"
        ) from None
    sections = _sections(text, str(file))
    name = DEFAULT_NODE if node is None else node
    if name not in sections:
        if path is None and node is None:
            return None
        there = ", ".join(f"--node {section}" for section in sections) or "add one, such as [default]"
        raise InputError(
            f"{file} has no section [{name}]: give {there}" if sections else f"{file} is empty: {there}"
        )
    section = _Section(f"{file}, section [{name}]", sections[name], name)
    if (
        os.name == "posix"
        and mode & (stat.S_IRGRP | stat.S_IROTH)
        and any(key in section.given for key in _SECRET)
    ):
        say(f"{file} holds a password, and others may read it: run chmod 600 {file}")
    return section.settings()


def _sections(text: str, file: str) -> dict[str, dict[str, Any]]:
    """Return the tables of a file. Messages of the parser hold values, so only its lines are told."""
    import tomllib

    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # int() raises the bare one for thousands of digits
        at = _AT.search(str(error))
        raise InputError(
            f"{file} is no configuration file of rabbitmqadmin 2: {at[1] if at else 'the text'} is not TOML; texts have quotes "
            "there, and numbers have none"
        ) from None
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


class _Section:
    """The table of a broker, with ours within it."""

    def __init__(self, where: str, table: Mapping[str, Any], name: str) -> None:
        self.where = where
        beside = table.get(_BESIDE, {})
        for key in table:
            if key.replace("-", "_") in _OURS:
                self._fail(key, f"this key belongs in the section [{name}.{_BESIDE}]")
            meant = key.lower().replace("-", "_")
            meant = _OLD_NAMES.get(meant, meant)
            if key != meant and meant in _KEYS:
                self._fail(key, f"this key is written {meant}")
        for key in beside if isinstance(beside, dict) else [_BESIDE]:
            if key not in _OURS:
                self._fail(key, f"the keys of [{name}.{_BESIDE}] are {', '.join(_OURS)}")
        self.given = {**table, **beside}

    def settings(self) -> NodeSettings:
        """Return what the section says."""
        base = self._base()
        tls = self._switch("tls") or self._text("scheme", "http").lower() == "https" or base.scheme == "https"
        host = (base.hostname or self._text("hostname", "localhost")).strip("[]")
        shown_host = f"[{host}]" if ":" in host else host
        login = ":".join(
            quote(self._text(key, unquote(own or "guest")), safe="")
            for key, own in (("username", base.username), ("password", base.password))
        )
        vhost = quote(self._text("virtual_host", "/"), safe="")
        port = base.port or self._port("port", 15671 if tls else 15672)
        amqp_port = self._port("amqp_port", 5671 if tls else 5672)
        files = self._tls_files() if tls else ""
        return NodeSettings(
            self.where,
            self._amqp_url(login, vhost)
            or f"{'amqps' if tls else 'amqp'}://{login}@{shown_host}:{amqp_port}/{vhost}{files}",
            f"{'https' if tls else 'http'}://{login}@{shown_host}:{port}{self._prefix()}{files}",
            self._text("ring_via", None),
        )

    def _base(self) -> Any:  # noqa: ANN401  # a SplitResult
        text = self._text("base_uri", "")
        try:
            parts = urlsplit(text)
            _ = parts.port
        except ValueError:
            self._fail("base_uri", "this is http://host:port, or https://")
        if text and (parts.scheme not in ("http", "https") or not parts.hostname):
            self._fail("base_uri", "this is http://host:port, or https://")
        return parts

    def _amqp_url(self, login: str, vhost: str) -> str | None:
        """Return our own key, with the login and the vhost of the section where it has none."""
        text = self._text("amqp_url", None)
        if text is None:
            return None
        scheme, separator, rest = text.partition("://")
        if scheme.lower() not in ("amqp", "amqps") or not separator:
            self._fail("amqp_url", "this is amqp://host:5672, or amqps://")
        address, query, parameters = rest.partition("?")
        host, _, path = address.partition("/")
        if "@" not in host:
            host = f"{login}@{host}"
        return f"{scheme}://{host}/{path or vhost}{query}{parameters}"

    def _tls_files(self) -> str:
        """Return the parameters of a URL that name the files."""
        files = {
            parameter: file
            for key, parameter in _TLS_FILES.items()
            if (file := self._text(key, None)) is not None
        }
        return f"?{urlencode(files, quote_via=quote)}" if files else ""

    def _prefix(self) -> str:
        """Return what is before ``/api``, in which the prefix of rabbitmqadmin may end."""
        parts = [part for part in self._text("path_prefix", "").split("/") if part]
        return "".join(f"/{quote(part)}" for part in (parts[:-1] if parts[-1:] == ["api"] else parts))

    def _text(self, key: str, default: Any) -> Any:  # noqa: ANN401  # a text, or the default
        value = self.given.get(key, default)
        if value is not default and not isinstance(value, str):
            self._fail(key, "this is a text; in TOML it has quotes")
        return value

    def _port(self, key: str, default: int) -> int:
        port = self.given.get(key, default)
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            self._fail(key, "this is a number from 1 to 65535")
        return port

    def _switch(self, key: str) -> bool:
        switch = self.given.get(key, False)
        if not isinstance(switch, bool):
            self._fail(key, "this is true or false")
        return switch

    def _fail(self, key: str, rule: str) -> NoReturn:
        raise InputError(f"{self.where}, key {key}: {rule}")
