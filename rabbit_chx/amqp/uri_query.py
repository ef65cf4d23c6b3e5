"""The parameters behind the question mark of a URL. Each is followed or refused; none is passed over.

An AMQP URI and the URL of the management API share those of TLS.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from rabbit_chx.amqp.secret import Secret
from rabbit_chx.amqp.tls_settings import TlsSettings
from rabbit_chx.amqp.url_parts import decoded, fail

__all__ = ["TLS_PARAMETERS", "given_parameters", "tls_settings"]

_LONGEST_NAME = 40
_NAME = re.compile(rf"\w{{1,{_LONGEST_NAME}}}")


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
    shown = f" {name!r}" if _NAME.fullmatch(name) else ""  # else it may be part of a password
    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
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
"""The names of the parameters of TLS, and what reads each."""
