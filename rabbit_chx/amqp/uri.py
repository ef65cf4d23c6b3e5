"""AMQP URIs, by RabbitMQ's own specification.

Neither client reads them so: pika refuses ``cacertfile``, aio-pika ignores ``cacertfile`` and ``verify``.
So the URI is read here, and the clients get values. Each parameter behind the question mark is followed or refused; none is
passed over. The URL of the management API has those of TLS, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from rabbit_chx.amqp.secret import Secret
from rabbit_chx.amqp.settings import AuthMechanism, ConnectionSettings, Protocol, TlsSettings
from rabbit_chx.amqp.url_parts import UriProblem, decoded, fail, url_parts
from rabbit_chx.errors import InputError, UriError

_LONGEST_PARAMETER = 40
_PARAMETER = re.compile(rf"\w{{1,{_LONGEST_PARAMETER}}}")


class _Scheme(NamedTuple):
    protocol: Protocol
    port: int
    with_tls: str  # the scheme that is the same with TLS; "" where this one is

    @property
    def tls(self) -> bool:
        return not self.with_tls


_AMQP = {"amqp": _Scheme("amqp", 5672, "amqps"), "amqps": _Scheme("amqp", 5671, "")}
_STREAMS = {
    "rabbitmq-stream": _Scheme("stream", 5552, "rabbitmq-stream+tls"),
    "rabbitmq-stream+tls": _Scheme("stream", 5551, ""),
}


def parse_uri(text: str) -> ConnectionSettings:
    """Read ``amqp[s]://user:password@host:port/vhost?parameters``.

    Absent parts are ``guest:guest@localhost:5672/%2F``, each for itself; the port of amqps is 5671. User
    name, password, host and vhost are percent-decoded as UTF-8; IPv6 is in brackets. Two points differ from
    the specification: ``amqp://host/`` is vhost ``/`` as in pika and aio-pika (the specification says: the
    vhost with the empty name), and an '@' that is not the one before the host must be written %40, because
    otherwise a password with a '/' in it would be taken for a host name.

    Parameters (rabbitmq-website/docs/uri-query-parameters.md; rabbitmq-server v4.3.6, amqp_uri.erl,
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
    settings, problem = _read(text, _AMQP)
    if settings is None:  # raised here, where no exception with a password in its frames is at hand
        raise UriError(f"AMQP URI: {problem}")
    return settings


def parse_stream_uri(text: str) -> ConnectionSettings:
    """Read ``rabbitmq-stream[+tls]://user:password@host:port/vhost?parameters``, or the AMQP URI of the same host.

    All is as in `parse_uri`, but for the port: it is 5552, or 5551 with TLS. The port of an AMQP URI is not that of streams, so it
    is passed over.

    Args:
        text: the URI.

    Raises:
        UriError: the text cannot be followed. No part of a password is in the message.
    """
    settings, problem = _read(text, _STREAMS | _AMQP)
    if settings is None:
        raise UriError(f"stream URI: {problem}")
    if settings.protocol == "amqp":
        return replace(settings, protocol="stream", port=5551 if settings.tls else 5552)
    return settings


def _read(text: str, schemes: dict[str, _Scheme]) -> tuple[ConnectionSettings | None, str]:
    try:
        return ConnectionSettings(**_values(text, schemes)), ""
    except (UriProblem, InputError) as error:
        return None, str(error)


def _values(text: str, schemes: dict[str, _Scheme]) -> dict[str, Any]:
    parts = url_parts(text, tuple(schemes))
    scheme = schemes[parts.scheme]
    values: dict[str, Any] = {
        "protocol": scheme.protocol,
        "host": parts.host or "localhost",
        "port": parts.port or scheme.port,
        "vhost": _vhost(parts.path),
    }
    if parts.username is not None:
        values["username"] = parts.username
    if parts.password is not None:
        values["password"] = parts.password
    return values | _parameters(parts.query, parts.scheme, scheme)


def _vhost(path: str) -> str:
    if "/" in path:
        fail("a '/' inside the vhost (or the password) must be written %2F")
    return decoded("vhost", path) or "/"


def _parameters(query: str, name_of_scheme: str, scheme: _Scheme) -> dict[str, Any]:
    values: dict[str, Any] = {}
    of_tls: dict[str, str] = {}
    mechanisms: list[str] = []
    for name, value in given_parameters(query, _KNOWN, repeatable=("auth_mechanism",)):
        if name == "auth_mechanism":
            mechanisms.append(value)
        elif name in _CONNECTION:
            values |= _CONNECTION[name](name, value)
        elif not scheme.tls:
            fail(
                f"{name} is for TLS: write {scheme.with_tls}:// instead of {name_of_scheme}://, or leave it out"
            )
        else:
            of_tls[name] = value
    if mechanisms:
        values["auth_mechanisms"] = _mechanisms(mechanisms)
    if scheme.tls:
        values["tls"] = tls_settings(of_tls)
    return values


def _mechanisms(names: list[str]) -> tuple[AuthMechanism, ...]:
    supported: dict[str, AuthMechanism] = {"plain": "PLAIN", "external": "EXTERNAL"}
    known = supported.keys() | {"amqplain", "crdemo"}
    for name in names:
        if name.lower() not in known:
            fail(f"auth_mechanism={name!r} is unknown: plain and external are supported")
    usable = tuple(dict.fromkeys(supported[name.lower()] for name in names if name.lower() in supported))
    if not usable:
        fail(f"auth_mechanism={names[0]} alone is not supported: plain logs in with the same password")
    return usable


def _whole(name: str, value: str, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > high:
        fail(f"{name}={value!r}: a whole number from 0 to {high} is possible")
    return int(value)


def _heartbeat(name: str, value: str) -> dict[str, Any]:
    return {"heartbeat_s": _whole(name, value, 65535)}


def _timeout(name: str, value: str) -> dict[str, Any]:
    milliseconds = _whole(name, value, 86_400_000)
    if milliseconds == 0:
        fail(f"{name}=0 leaves no time: give milliseconds, 10000 for ten seconds")
    return {"connection_timeout_s": milliseconds / 1000}


def _channel_max(name: str, value: str) -> dict[str, Any]:
    return {"channel_max": _whole(name, value, 65535) or None}


def _frame_max(name: str, value: str) -> dict[str, Any]:
    return {"frame_max": _whole(name, value, 2**32 - 1) or None}


_CONNECTION: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "heartbeat": _heartbeat,
    "connection_timeout": _timeout,
    "channel_max": _channel_max,
    "frame_max": _frame_max,
}


def given_parameters(
    query: str, known: Collection[str], *, repeatable: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Return the parameters of a query, in order, with their decoded values.

    Args:
        query: what is behind the question mark.
        known: the names that are possible.
        repeatable: those of them that may be given more than once.

    Raises:
        UriProblem: a name is unknown or given twice, or has no value.
    """
    seen: set[str] = set()
    for pair in filter(None, query.split("&")):
        name, equals, raw = pair.partition("=")
        if name not in known:
            _fail_unknown(name, known, after_password="password" in seen)
        if name in seen and name not in repeatable:
            fail(f"{name} is given twice")
        seen.add(name)
        if not (equals and raw):
            fail(f"{name} has no value: write {name}=...")
        yield name, decoded(f"value of {name}", raw)


def _fail_unknown(name: str, known: Collection[str], *, after_password: bool) -> NoReturn:
    if after_password:
        fail("an unknown parameter after password=...: an '&' inside that password is written %26")
    shown = f" {name!r}" if _PARAMETER.fullmatch(name) else ""  # else it may be part of a password
    near = difflib.get_close_matches(name[:_LONGEST_PARAMETER], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    fail(f"unknown parameter{shown}: {hint}")


def tls_settings(parameters: dict[str, str]) -> TlsSettings:
    """Return what parameters of TLS say.

    Args:
        parameters: their names, which are among those of `TLS_PARAMETERS`, and their values.

    Raises:
        UriProblem: a value is not possible, or a key is given without its certificate.
    """
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        values |= TLS_PARAMETERS[name](name, value)
    if "key_file" in values and "cert_file" not in values:
        fail("keyfile without certfile: give both")
    return TlsSettings(**values)


def _text(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda _name, value: {field: value}


def _choice(field: str | None, meaning: dict[str, bool]) -> Callable[[str, str], dict[str, Any]]:
    def read(name: str, value: str) -> dict[str, Any]:
        if value not in meaning:
            fail(f"{name}={value!r}: {' or '.join(meaning)} is possible")
        return {field: meaning[value]} if field else {}

    return read


def _server_name(_name: str, value: str) -> dict[str, Any]:
    return {"check_server_name": False} if value == "disable" else {"server_name": value}


def _depth(_name: str, _value: str) -> NoReturn:
    fail("depth is not supported, Python cannot bound the length of a certificate chain: leave it out")


def _key_password(_name: str, value: str) -> dict[str, Any]:
    return {"key_password": Secret(value)}


#: The names of the parameters of TLS, and what reads each.
TLS_PARAMETERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
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
_KNOWN = ["auth_mechanism", *_CONNECTION, *TLS_PARAMETERS]
