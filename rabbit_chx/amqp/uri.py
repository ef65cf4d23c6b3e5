"""AMQP URIs, by RabbitMQ's own specification.

Neither client reads them so: pika refuses ``cacertfile``, aio-pika ignores ``cacertfile`` and ``verify``.
So the URI is read here, and the clients get values.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote_to_bytes

from rabbit_chx.amqp.secret import Secret
from rabbit_chx.amqp.settings import ConnectionSettings, TlsSettings
from rabbit_chx.errors import InputError, UriError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.amqp.settings import AuthMechanism

__all__ = ["parse_uri"]

_URI = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?#]*)(?:/(?P<path>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_HOST_NAME = re.compile(r"[^\s/@?#:%\[\]\x00-\x1f\x7f]+")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_URIS = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")

_ENCODE = (
    "percent-encode what is special in a user name, password or vhost: '@' %40, '/' %2F, '?' %3F, '#' %23"
)


def parse_uri(text: str) -> ConnectionSettings:
    """Read ``amqp[s]://user:password@host:port/vhost?parameters``.

    Absent parts are ``guest:guest@localhost:5672/%2F``, each for itself; the port of amqps is 5671. User
    name, password, host and vhost are percent-decoded as UTF-8; IPv6 is in brackets. Two points differ from
    the specification: ``amqp://host/`` is vhost ``/`` as in pika and aio-pika (the specification says: the
    vhost with the empty name), and an '@' that is not the one before the host must be written %40, because
    otherwise a password with a '/' in it would be taken for a host name.

    Parameters (rabbitmq-website, docs/uri-query-parameters.md; rabbitmq-server v4.3.6, amqp_uri.erl,
    ``build_ssl_broker/2`` and ``parse_amqp_param/2``):

    ==========================  ====================================================================
    heartbeat                   seconds; 0 for none
    connection_timeout          milliseconds
    channel_max, frame_max      a number, bytes; 0 for what the broker allows
    auth_mechanism              plain or external; may repeat; amqplain and crdemo only beside one of them
    cacertfile                  amqps: PEM file of the authorities to trust, else those of the system
    certfile, keyfile           amqps: PEM files of our certificate and its key
    password                    amqps: the password of the key
    verify                      amqps: verify_peer (here the default; not so in Erlang) or verify_none
    server_name_indication      amqps: the name to ask for and to check, or ``disable`` for neither
    fail_if_no_peer_cert        amqps: true or false; concerns servers only, so it changes nothing
    customize_hostname_check    amqps: https, which is what Python does anyway
    ==========================  ====================================================================

    Args:
        text: the URI.

    Raises:
        UriError: the text cannot be followed. No part of a password is in the message.
    """
    match = _split(text)
    tls = match["scheme"].lower() == "amqps"
    userinfo, at, address = match["authority"].rpartition("@")
    values: dict[str, Any] = {
        **_address(address, default_port=5671 if tls else 5672),
        "vhost": _vhost(match["path"]),
    }
    if at:
        username, colon, password = userinfo.partition(":")
        values["username"] = _decode("user name", username)
        if colon:
            values["password"] = Secret(_decode("password", password))
    values |= _parameters(match["query"] or "", tls=tls)
    settings, problem = _build(values)
    if settings is None:
        raise UriError(f"AMQP URI: {problem}")
    return settings


def _build(values: dict[str, Any]) -> tuple[ConnectionSettings | None, str]:
    try:
        return ConnectionSettings(**values), ""
    except InputError as error:
        return None, str(error)


def _fail(problem: str) -> NoReturn:
    raise UriError(f"AMQP URI: {problem}")


def _split(text: str) -> re.Match[str]:
    if not isinstance(text, str):
        _fail(f"expected text such as amqp://user:password@host:5672/vhost, not {type(text).__name__}")
    if not re.match(r"amqps?://", text, re.IGNORECASE):
        _fail("it must begin with amqp:// or amqps://")
    if _NOT_IN_URIS.search(text):
        _fail("white space or a control character in it: remove it, or percent-encode it")
    match = _URI.fullmatch(text)
    if match is None:
        _fail(f"a '#' in it; {_ENCODE}")
    if text.count("@") != match["authority"].count("@") or text.count("@") > 1:
        _fail(f"an '@' too many; {_ENCODE}")
    if _BAD_PERCENT.search(text):
        _fail("a '%' that is not followed by two hexadecimal digits: write a '%' itself as %25")
    return match


def _decode(what: str, text: str) -> str:
    decoded = _utf8(unquote_to_bytes(text))
    if decoded is None:
        _fail(f"the {what} is not UTF-8 after percent-decoding")
    return decoded


def _utf8(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _address(text: str, default_port: int) -> dict[str, Any]:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        _fail(f"the part between '@' and '/' must be host:port, with IPv6 in brackets; {_ENCODE}")
    port = match["port"] or str(default_port)
    if len(port) > 5 or not 1 <= int(port) <= 65535:
        _fail("the port must be a number from 1 to 65535")
    return {"host": _host(match["host"]) or "localhost", "port": int(port)}


def _host(text: str) -> str:
    host = _decode("host", text.removeprefix("[").removesuffix("]"))
    if text.startswith("["):
        if not _is_ipv6(host) or _NOT_IN_URIS.search(host):
            _fail("the text in brackets is not an IPv6 address")
    elif host and not _HOST_NAME.fullmatch(host):
        _fail("the host name holds characters that no host name has")
    return host


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _vhost(path: str | None) -> str:
    if path is not None and "/" in path:
        _fail("a '/' inside the vhost (or the password) must be written %2F")
    return _decode("vhost", path or "") or "/"


def _parameters(query: str, *, tls: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    tls_values: dict[str, Any] = {}
    mechanisms: list[str] = []
    seen: set[str] = set()
    for pair in filter(None, query.split("&")):
        name, equals, raw = pair.partition("=")
        if name not in _KNOWN:
            _fail_unknown(name, after_password="password" in seen)
        if name in seen and name != "auth_mechanism":
            _fail(f"{name} is given twice")
        seen.add(name)
        if not (equals and raw):
            _fail(f"{name} has no value: write {name}=...")
        value = _decode(f"value of {name}", raw)
        if name == "auth_mechanism":
            mechanisms.append(value)
        elif name in _CONNECTION:
            values |= _CONNECTION[name](name, value)
        elif not tls:
            _fail(f"{name} is for TLS: write amqps:// instead of amqp://, or leave it out")
        else:
            tls_values |= _TLS[name](name, value)
    if mechanisms:
        values["auth_mechanisms"] = _mechanisms(mechanisms)
    if tls:
        values["tls"] = _tls(tls_values)
    return values


def _tls(values: dict[str, Any]) -> TlsSettings:
    if "key_file" in values and "cert_file" not in values:
        _fail("keyfile without certfile: give both")
    return TlsSettings(**values)


def _fail_unknown(name: str, *, after_password: bool) -> NoReturn:
    if after_password:
        _fail("an unknown parameter after password=...: an '&' inside that password is written %26")
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(_KNOWN))}"
    _fail(f"unknown parameter {name!r}: {hint}")


def _mechanisms(names: list[str]) -> tuple[AuthMechanism, ...]:
    supported: dict[str, AuthMechanism] = {"plain": "PLAIN", "external": "EXTERNAL"}
    known = supported.keys() | {"amqplain", "crdemo"}
    for name in names:
        if name.lower() not in known:
            _fail(f"auth_mechanism={name!r} is unknown: plain and external are supported")
    usable = tuple(dict.fromkeys(supported[n.lower()] for n in names if n.lower() in supported))
    if not usable:
        _fail(f"auth_mechanism={names[0]} alone is not supported: plain logs in with the same password")
    return usable


def _whole(name: str, value: str, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > high:
        _fail(f"{name}={value!r}: a whole number from 0 to {high} is possible")
    return int(value)


def _heartbeat(name: str, value: str) -> dict[str, Any]:
    return {"heartbeat_s": _whole(name, value, 65535)}


def _timeout(name: str, value: str) -> dict[str, Any]:
    milliseconds = _whole(name, value, 86_400_000)
    if milliseconds == 0:
        _fail(f"{name}=0 leaves no time: give milliseconds, 10000 for ten seconds")
    return {"connection_timeout_s": milliseconds / 1000}


def _channel_max(name: str, value: str) -> dict[str, Any]:
    return {"channel_max": _whole(name, value, 65535) or None}


def _frame_max(name: str, value: str) -> dict[str, Any]:
    return {"frame_max": _whole(name, value, 2**32 - 1) or None}


def _text(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda _name, value: {field: value}


def _choice(field: str | None, meaning: dict[str, bool]) -> Callable[[str, str], dict[str, Any]]:
    def read(name: str, value: str) -> dict[str, Any]:
        if value not in meaning:
            _fail(f"{name}={value!r}: {' or '.join(meaning)} is possible")
        return {field: meaning[value]} if field else {}

    return read


def _server_name(_name: str, value: str) -> dict[str, Any]:
    return {"check_server_name": False} if value == "disable" else {"server_name": value}


def _depth(_name: str, _value: str) -> NoReturn:
    _fail("depth is not supported, Python cannot bound the length of a certificate chain: leave it out")


def _key_password(_name: str, value: str) -> dict[str, Any]:
    return {"key_password": Secret(value)}


_CONNECTION: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "heartbeat": _heartbeat,
    "connection_timeout": _timeout,
    "channel_max": _channel_max,
    "frame_max": _frame_max,
}
_TLS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "cacertfile": _text("ca_file"),
    "certfile": _text("cert_file"),
    "keyfile": _text("key_file"),
    "password": _key_password,
    "verify": _choice("verify", {"verify_peer": True, "verify_none": False}),
    "server_name_indication": _server_name,
    "fail_if_no_peer_cert": _choice(None, {"true": True, "false": False}),
    "customize_hostname_check": _choice(None, {"https": True}),
    "depth": _depth,
}
_KNOWN = ["auth_mechanism", *_CONNECTION, *_TLS]
