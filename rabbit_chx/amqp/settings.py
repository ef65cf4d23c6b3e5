"""Address and login of a broker: settings, and the parser of URLs.

A URL is an AMQP or stream URI by RabbitMQ's specification, or the URL of the management API. It is parsed here because the clients' parsers
differ: pika refuses ``cacertfile``, aio-pika ignores ``cacertfile`` and ``verify``, and `urllib.parse` mistakes part of a password with a
'/' for the host name. An unknown parameter is an error. Errors and the frames of their tracebacks contain no part of a password.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NoReturn, TypeVar
from urllib.parse import quote, unquote_to_bytes

from rabbit_chx.checks import MAX_SHORTSTR, check_whole, is_ipv6, is_number, similar, too_long
from rabbit_chx.errors import InputError, UriError

_Given = TypeVar("_Given")
_T = TypeVar("_T")

#: The login of a connection: by password, or by TLS certificate.
AuthMechanism = Literal["PLAIN", "EXTERNAL"]
#: The protocol of a connection: AMQP 0-9-1, or the stream protocol.
Protocol = Literal["amqp", "stream"]

#: The schemes of each protocol, without and with TLS.
SCHEMES = {"amqp": ("amqp", "amqps"), "stream": ("rabbitmq-stream", "rabbitmq-stream+tls")}

#: RabbitMQ 4.1 and later close a connection with smaller frames, without a reason (4,096 is the minimum of AMQP).
_MIN_FRAME_MAX = 8192
MAX_TIMEOUT_S = 86_400.0
_MASK = "***"


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A password; `repr`, `str` and formatting show ``***`` only.

    Pickling keeps the password, so that worker processes can log in. The pickle is obfuscated, not encrypted, because other programs
    sometimes log pickles.

    Raises:
        InputError: the value is not text.
    """

    _value: str
    #: The time by ``time.monotonic()`` at which a connection that logged in with it needs the next one.
    renew_at: float = field(default=math.inf, compare=False)
    #: The time by ``time.monotonic()`` at which that connection loses its permissions.
    expires_at: float = field(default=math.inf, compare=False)
    #: Whether it is an OAuth 2 token, which HTTP sends as a bearer token.
    is_token: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self._value, str):
            raise InputError(f"a Secret holds text, not {type(self._value).__name__}")

    def __reduce__(self) -> tuple[Callable[[bytes], Secret], tuple[bytes]]:
        return _unpickle, (base64.b85encode(self._value.encode("utf-8", "surrogatepass")),)

    def reveal(self) -> str:
        """Return the password itself."""
        return self._value

    def current(self, wait_s: float = math.inf) -> Secret:  # noqa: ARG002  # of tokens
        """Return the secret for a login now; a subclass may wait for it, for `wait_s` seconds at most."""
        return self

    def latest(self) -> Secret:
        """Return the secret for an open connection, without a wait."""
        return self

    @property
    def pending(self) -> str:
        """What a login waits for; "" for nothing."""
        return ""

    def __repr__(self) -> str:
        return f"Secret('{_MASK}')"

    def __str__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)


def _unpickle(covered: bytes) -> Secret:
    return Secret(base64.b85decode(covered).decode("utf-8", "surrogatepass"))


def require_secret(name: str, value: object) -> None:
    """Raise an InputError for a password that is not a `Secret`."""
    if not isinstance(value, Secret):
        raise InputError(f"{name} must be a Secret, so that it is never shown: wrap it as Secret(...)")


def read_secretly(read: Callable[[_Given], _T], given: _Given) -> _T:
    """Return ``read(given)`` for an input with a password. An InputError loses its frames, because error trackers print locals.

    The caller must delete its own variable, also if this raises.
    """
    try:
        return read(given)
    except InputError as cause:
        error = cause.with_traceback(None)
    finally:
        del given
    error.__cause__ = error.__context__ = None
    raise error


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of a connection. The files are not opened here.

    Attributes:
        ca_file: PEM file of the trusted authorities; None for those of the system.
        cert_file: PEM file of the client certificate, for brokers that request one.
        key_file: PEM file of its key; None if the key is in `cert_file`.
        key_password: the password of that key.
        verify: whether to verify the broker's certificate. Disable it for tests only.
        server_name: the name for SNI and the check of the certificate; None for the host.
        check_server_name: False disables SNI and the check of the name; the chain is still verified.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    verify: bool = True
    server_name: str | None = None
    check_server_name: bool = True

    def __post_init__(self) -> None:
        if self.key_password is not None:
            require_secret("key_password", self.key_password)
        if self.key_file is not None and self.cert_file is None:
            raise InputError("a key file without a certificate file: pass certfile as well")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of a connection: broker, vhost and user.

    Attributes:
        host: name or address; IPv6 without brackets.
        port: TCP port; the default is 5672, or 5671 with TLS.
        vhost: the virtual host, decoded.
        username: for PLAIN; EXTERNAL takes the name from the client certificate.
        password: for PLAIN.
        tls: None for plain TCP.
        heartbeat_s: requested heartbeat in seconds; 0 disables heartbeats, None selects the default of the connection.
        connection_timeout_s: seconds within which the connection must be open.
        channel_max: most channels per connection; None for the broker's limit.
        frame_max: largest frame in bytes, 8192 or more; None for the broker's limit.
        auth_mechanisms: SASL mechanisms in order of preference; the first that the broker offers is used.
        connection_name: the name that the management UI shows.
        protocol: AMQP 0-9-1, or the stream protocol with the default ports 5552, and 5551 with TLS.

    Raises:
        InputError: a value is out of range; the message names it.
    """

    host: str = "localhost"
    port: int = 5672
    vhost: str = "/"
    username: str = "guest"
    password: Secret = field(default=Secret("guest"))
    tls: TlsSettings | None = None
    heartbeat_s: int | None = None
    connection_timeout_s: float = 10.0
    channel_max: int | None = None
    frame_max: int | None = None
    auth_mechanisms: tuple[AuthMechanism, ...] = ("PLAIN",)
    connection_name: str | None = None
    protocol: Protocol = "amqp"

    def __post_init__(self) -> None:
        require_secret("password", self.password)
        if not self.host:
            raise InputError("host is empty: pass a name or an address")

        check_whole("port", self.port, 1, 65535)
        for name, least, most in (
            ("heartbeat_s", 0, 65535),
            ("channel_max", 1, 65535),
            ("frame_max", _MIN_FRAME_MAX, 2**32 - 1),
        ):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least, most)

        if not is_number(self.connection_timeout_s) or not 0 < self.connection_timeout_s <= MAX_TIMEOUT_S:
            raise InputError(
                f"connection_timeout_s is {self.connection_timeout_s}: "
                f"more than 0 and at most {MAX_TIMEOUT_S:.0f} seconds are possible"
            )

        vhost_bytes = len(self.vhost.encode())
        if vhost_bytes > MAX_SHORTSTR:
            raise InputError(too_long("the vhost", vhost_bytes))
        if "\0" in self.username or (not self.password.is_token and "\0" in self.password.reveal()):
            raise InputError("user name or password holds a NUL: PLAIN cannot carry that")
        if not self.auth_mechanisms or set(self.auth_mechanisms) - {"PLAIN", "EXTERNAL"}:
            raise InputError(f"auth_mechanisms is {self.auth_mechanisms!r}: pass PLAIN, EXTERNAL or both")

    @classmethod
    def from_uri(cls, text: str) -> ConnectionSettings:
        """Return the settings of the AMQP URI `text`; `parse_uri` documents the rules and errors."""
        return parse_uri(text)

    @classmethod
    def of(cls, target: str | ConnectionSettings) -> ConnectionSettings:
        """Return a `target` that is settings as it is, or the settings of an AMQP URI."""
        return target if isinstance(target, ConnectionSettings) else parse_uri(target)

    def by(self, protocol: Protocol) -> ConnectionSettings:
        """Return the settings of a connection to the same host by a `protocol`: if it is another one, at its default port."""
        if self.protocol == protocol:
            return self
        return replace(self, protocol=protocol, port=default_port(protocol, tls=self.tls is not None))

    @property
    def masked_url(self) -> str:
        """The address with ``***`` for the password, for messages and logs."""
        scheme = SCHEMES[self.protocol][self.tls is not None]
        address = _mask_address(scheme, self.username, self.host, self.port)
        return f"{address}/{quote(self.vhost, safe='')}"


def default_port(protocol: Protocol, *, tls: bool) -> int:
    """Return the port of a protocol, if no other is configured."""
    return _PORTS[SCHEMES[protocol][tls]]


@dataclass(frozen=True, slots=True)
class ManagementUrl:
    """Address and login of the management API.

    Attributes:
        port: TCP port; None for that of the scheme, 80 or 443.
        prefix: the part before ``/api`` in each path.
        tls: None for ``http``.
    """

    host: str
    port: int | None
    prefix: str = ""
    username: str | None = None
    password: Secret | None = None
    tls: TlsSettings | None = None

    @classmethod
    def of(cls, text: str) -> ManagementUrl:
        """Parse ``http[s]://user:password@host:port/prefix?parameters``; the parameters are those of TLS in `parse_uri`."""
        return _parsed("management URL", InputError, lambda: _management_url(text))

    def with_login_of(self, settings: ConnectionSettings) -> ManagementUrl:
        """Return the URL with the login of AMQP settings, unless it has its own."""
        if self.username is not None or self.password is not None:
            return self
        return replace(self, username=settings.username, password=settings.password)

    def authorization(self) -> Secret:
        """Return the header ``Authorization``."""
        password = self.password or Secret("guest")
        if password.is_token:
            return Secret(f"Bearer {password.reveal()}")
        login = f"{self.username or 'guest'}:{password.reveal() or 'guest'}"
        return Secret(f"Basic {base64.b64encode(login.encode()).decode()}")

    @property
    def masked(self) -> str:
        """The address with ``***`` for the password, for messages and logs."""
        scheme = "http" if self.tls is None else "https"
        return _mask_address(scheme, self.username or "guest", self.host, self.port)


def _mask_address(scheme: str, username: str, host: str, port: int | None) -> str:
    shown_host = f"[{quote(host, safe=':')}]" if ":" in host else quote(host, safe="")
    shown_port = "" if port is None else f":{port}"
    return f"{scheme}://{quote(username, safe='')}:{_MASK}@{shown_host}{shown_port}"


# -- URLs

_URL = re.compile(
    r"(?P<scheme>[A-Za-z+-]+)://(?P<authority>[^/?#]*)(?:/(?P<path>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_HOST_NAME = re.compile(r"[^\s/@?#:%\[\]\x00-\x1f\x7f]+")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_URLS = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_PARAMETER = 40
_PARAMETER = re.compile(rf"\w{{1,{_LONGEST_PARAMETER}}}")

_ENCODE = (
    "percent-encode what is special in a user name, password or vhost: '@' %40, '/' %2F, '?' %3F, '#' %23"
)
_HTTP = ("http", "https")
#: The default port of each scheme; the HTTP library has its own.
_PORTS = {"amqp": 5672, "amqps": 5671, "rabbitmq-stream": 5552, "rabbitmq-stream+tls": 5551}
#: The TLS variant of each scheme.
_WITH_TLS = dict([*SCHEMES.values(), _HTTP])

_CONNECTION_PARAMETERS = ("auth_mechanism", "heartbeat", "connection_timeout", "channel_max", "frame_max")
TLS_PARAMETERS = (
    "cacertfile", "certfile", "keyfile", "password", "verify", "server_name_indication",
    "fail_if_no_peer_cert", "customize_hostname_check", "depth",
)  # fmt: skip


def parse_uri(text: str) -> ConnectionSettings:
    """Parse ``amqp[s]://user:password@host:port/vhost?parameters``.

    Each absent part has its default: ``guest:guest@localhost:5672/%2F``, and port 5671 for amqps. User name, password, host and vhost are
    percent-decoded as UTF-8; IPv6 is in brackets. Two points differ from the specification. ``amqp://host/`` is vhost ``/`` as in pika and
    aio-pika, not the vhost with the empty name. An '@' other than the one before the host must be written %40; otherwise a password with a
    '/' could be mistaken for a host name. A malformed URI and an unknown parameter raise a UriError.

    Parameters (rabbitmq-website/docs/uri-query-parameters.md; rabbitmq-server v4.3.6, amqp_uri.erl, ``build_ssl_broker/2`` and
    ``parse_amqp_param/2``):

    ==========================  ====================================================================
    heartbeat                   seconds; 0 for none
    connection_timeout          milliseconds
    channel_max, frame_max      a number, bytes; 0 for the broker's limit
    auth_mechanism              plain or external; may repeat; amqplain and crdemo only with one of them
    cacertfile                  amqps: PEM file of the trusted authorities; default: those of the system
    certfile, keyfile           amqps: PEM files of the client certificate and its key
    password                    amqps: the password of the key
    verify                      amqps: verify_peer (the default here, unlike Erlang) or verify_none
    server_name_indication      amqps: the name to send and to check, or ``disable`` for neither
    fail_if_no_peer_cert        amqps: true or false; for servers only, so it has no effect
    customize_hostname_check    amqps: https, which is Python's check in any case
    ==========================  ====================================================================
    """
    return _parsed("AMQP URI", UriError, lambda: _settings(text, SCHEMES["amqp"]))


def parse_stream_uri(text: str) -> ConnectionSettings:
    """Parse ``rabbitmq-stream[+tls]://user:password@host:port/vhost?parameters``, or the AMQP URI of the same host.

    The rules are those of `parse_uri`. The default port is 5552, or 5551 with TLS. The port of an AMQP URI is ignored.
    """
    schemes = SCHEMES["stream"] + SCHEMES["amqp"]
    return _parsed("stream URI", UriError, lambda: _settings(text, schemes)).by("stream")


def with_path(text: str, path: str) -> str:
    """Return a valid URL with another path, which is percent-encoded and has no leading '/'."""
    match = _URL.fullmatch(text) or _fail(f"a '#' in it; {_ENCODE}")
    query = "" if match["query"] is None else f"?{match['query']}"
    return f"{match['scheme']}://{match['authority']}/{path}{query}"


def _fail(problem: str) -> NoReturn:
    """Raise the reason why a URL is invalid; `_parsed` adds which."""
    raise InputError(problem)


def _parsed(what: str, kind: type[InputError], parse: Callable[[], _T]) -> _T:
    """Return a parsed URL. Its error is raised outside of the frames and contexts that contain the password."""
    try:
        return parse()
    except InputError as error:
        problem = str(error)
    finally:
        del parse
    raise kind(f"{what}: {problem}")


def _settings(text: str, schemes: Sequence[str]) -> ConnectionSettings:
    url = _split(text, schemes)
    if "/" in url.path:
        _fail("a '/' inside the vhost (or the password) must be written %2F")
    values: dict[str, Any] = {
        "protocol": "amqp" if url.scheme in SCHEMES["amqp"] else "stream",
        "host": url.host or "localhost",
        "port": url.port or _PORTS[url.scheme],
        "vhost": _decode("vhost", url.path) or "/",
    }
    if url.username is not None:
        values["username"] = url.username
    if url.password is not None:
        values["password"] = url.password

    mechanisms: list[str] = []
    tls: dict[str, str] = {}
    for name, value in _parameters(url, _CONNECTION_PARAMETERS + TLS_PARAMETERS):
        if name == "auth_mechanism":
            mechanisms.append(value)
        elif name in TLS_PARAMETERS:
            tls[name] = value
        else:
            values |= _connection_field(name, value)

    if mechanisms:
        values["auth_mechanisms"] = _mechanisms(mechanisms)
    return ConnectionSettings(**values, tls=_tls_settings(url.scheme, tls))


def _management_url(text: str) -> ManagementUrl:
    url = _split(text, _HTTP)
    if not url.host:
        _fail("it names no host: pass http://user:password@host:15672")
    path = quote(url.path.rstrip("/"), safe="/%!$&'()*+,;=:@~")
    tls = _tls_settings(url.scheme, dict(_parameters(url, TLS_PARAMETERS)))
    return ManagementUrl(url.host, url.port, path and f"/{path}", url.username, url.password, tls)


# -- the parts of a URL


@dataclass(frozen=True, slots=True)
class _UriParts:
    """A split URL. Path and query are still percent-encoded, without the leading '/' and '?'."""

    scheme: str
    username: str | None
    password: Secret | None
    host: str
    port: int | None
    path: str
    query: str


def _split(text: str, schemes: Sequence[str]) -> _UriParts:
    match = _match(text, schemes)
    userinfo, at, address = match["authority"].rpartition("@")
    host, port = _address(address)
    username, colon, password = userinfo.partition(":")
    return _UriParts(
        match["scheme"].lower(),
        _decode("user name", username) if at else None,
        Secret(_decode("password", password)) if at and colon else None,
        host,
        port,
        match["path"] or "",
        match["query"] or "",
    )


def _match(text: str, schemes: Sequence[str]) -> re.Match[str]:
    if not isinstance(text, str):
        _fail(f"expected text such as {schemes[0]}://user:password@host, not {type(text).__name__}")
    if text[:1] in ("'", '"'):
        _fail("remove the quotes around it, which a shell removes, and an environment file of Docker keeps")
    if not text.lower().startswith(tuple(f"{scheme}://" for scheme in schemes)):
        _fail(f"it must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if _NOT_IN_URLS.search(text):
        _fail("white space or a control character in it: remove it, or percent-encode it")
    match = _URL.fullmatch(text)
    if match is None:
        _fail(f"a '#' in it; {_ENCODE}")
    if text.count("@") != match["authority"].count("@") or text.count("@") > 1:
        _fail(f"an '@' too many; {_ENCODE}")
    if _BAD_PERCENT.search(text):
        _fail("a '%' that is not followed by two hexadecimal digits: write a '%' itself as %25")
    return match


def _decode(name: str, text: str) -> str:
    raw = unquote_to_bytes(text)
    decoded = raw.decode(errors="replace")
    if decoded.encode() != raw:
        _fail(f"the {name} is not UTF-8 after percent-decoding")
    return decoded


def _address(text: str) -> tuple[str, int | None]:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        _fail(f"the part between '@' and '/' must be host:port, with IPv6 in brackets; {_ENCODE}")
    port = match["port"]
    if port and (len(port) > 5 or not 1 <= int(port) <= 65535):
        _fail("the port must be a number from 1 to 65535")
    return _host(match["host"]), int(port) if port else None


def _host(text: str) -> str:
    host = _decode("host", text.removeprefix("[").removesuffix("]"))
    if text.startswith("["):
        if not is_ipv6(host) or _NOT_IN_URLS.search(host):
            _fail("the text in brackets is not an IPv6 address")
    elif host and not _HOST_NAME.fullmatch(host):
        _fail("the host name holds characters that no host name has")
    try:
        host.encode("idna")  # as sockets do
    except UnicodeError:
        _fail("a part of the host name between dots is empty, or longer than 63 characters")
    return host


# -- parameters


def _parameters(url: _UriParts, known: Collection[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for pair in filter(None, url.query.split("&")):
        name, equals, raw = pair.partition("=")
        if name not in known:
            _fail_unknown(name, known, after_password="password" in seen)
        if name in seen and name != "auth_mechanism":
            _fail(f"{name} is given twice")
        seen.add(name)
        if not (equals and raw):
            _fail(f"{name} has no value: write {name}=...")
        yield name, _decode(f"value of {name}", raw)


def _fail_unknown(name: str, known: Collection[str], *, after_password: bool) -> NoReturn:
    if after_password:
        _fail("an unknown parameter after password=...: an '&' inside that password is written %26")
    shown = f" {name!r}" if _PARAMETER.fullmatch(name) else ""  # otherwise it may be part of a password
    near = similar(name[:_LONGEST_PARAMETER], known)
    hint = f"did you mean {near}?" if near else f"known are {', '.join(sorted(known))}"
    _fail(f"unknown parameter{shown}: {hint}")


def _connection_field(name: str, value: str) -> dict[str, Any]:
    if name == "heartbeat":
        return {"heartbeat_s": _number(name, value, 65535)}
    if name == "connection_timeout":
        milliseconds = _number(name, value, 86_400_000)
        if milliseconds == 0:
            _fail(f"{name}=0 leaves no time: pass milliseconds, 10000 for ten seconds")
        return {"connection_timeout_s": milliseconds / 1000}
    return {name: _number(name, value, 65535 if name == "channel_max" else 2**32 - 1) or None}


def _number(name: str, value: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > most:
        _fail(f"{name}={value!r}: a whole number from 0 to {most} is possible")
    return int(value)


def _mechanisms(names: list[str]) -> tuple[AuthMechanism, ...]:
    supported: dict[str, AuthMechanism] = {"plain": "PLAIN", "external": "EXTERNAL"}
    known = supported.keys() | {"amqplain", "crdemo"}
    for name in names:
        if name.lower() not in known:
            _fail(f"auth_mechanism={name!r} is unknown: plain and external are supported")
    usable = tuple(dict.fromkeys(supported[name.lower()] for name in names if name.lower() in supported))
    if not usable:
        _fail(f"auth_mechanism={names[0]} alone is not supported: plain logs in with the same password")
    return usable


def _tls_settings(scheme: str, parameters: dict[str, str]) -> TlsSettings | None:
    if scheme in _WITH_TLS:
        for name in parameters:
            _fail(f"{name} is for TLS: write {_WITH_TLS[scheme]}:// instead of {scheme}://, or leave it out")
        return None
    if "keyfile" in parameters and "certfile" not in parameters:
        _fail("keyfile without certfile: pass both")
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        values |= _tls_field(name, value)
    return TlsSettings(**values)


_TEXTS = {"cacertfile": "ca_file", "certfile": "cert_file", "keyfile": "key_file"}
#: Parameters with one or two values, and the field that each sets; None for a parameter without effect.
_CHOICES: dict[str, tuple[str | None, dict[str, bool]]] = {
    "verify": ("verify", {"verify_peer": True, "verify_none": False}),
    "fail_if_no_peer_cert": (None, {"true": True, "false": False}),
    "customize_hostname_check": (None, {"https": True}),
}


def _tls_field(name: str, value: str) -> dict[str, Any]:
    if name in _TEXTS:
        return {_TEXTS[name]: value}
    if name == "password":
        return {"key_password": Secret(value)}
    if name == "server_name_indication":
        return {"check_server_name": False} if value == "disable" else {"server_name": value}
    if name == "depth":
        _fail("depth is not supported, Python cannot bound the length of a certificate chain: leave it out")
    field, values = _CHOICES[name]
    if value not in values:
        _fail(f"{name}={value!r}: {' or '.join(values)} is possible")
    return {} if field is None else {field: values[value]}
