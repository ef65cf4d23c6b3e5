"""Where a broker is and how to log in, as values: AMQP and stream connections, the management API, TLS, passwords."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar
from urllib.parse import quote

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.names import too_long
from rabbit_chx.checks import check_whole, is_number
from rabbit_chx.errors import InputError

_Given = TypeVar("_Given")
_T = TypeVar("_T")

#: How a connection logs in: by a password, or by the certificate of TLS.
AuthMechanism = Literal["PLAIN", "EXTERNAL"]
#: What is spoken on a connection: AMQP 0-9-1, or the protocol of streams.
Protocol = Literal["amqp", "stream"]

_SCHEMES = {"amqp": ("amqp", "amqps"), "stream": ("rabbitmq-stream", "rabbitmq-stream+tls")}

_MIN_FRAME_MAX = 4096
MAX_TIMEOUT_S = 86_400.0
_MASK = "***"


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Holds a password; `repr`, `str` and formatting show ``***`` only.

    Pickling keeps the password, so that a process that works for us can log in. The pickle does not hold it
    in clear text, because logs and tracebacks of others sometimes show pickles. That is not encryption.

    Raises:
        InputError: the value is not text.
    """

    _value: str

    def __post_init__(self) -> None:
        if not isinstance(self._value, str):
            raise InputError(f"a Secret holds text, not {type(self._value).__name__}")

    def __reduce__(self) -> tuple[Callable[[bytes], Secret], tuple[bytes]]:
        return _unpickled, (base64.b85encode(self._value.encode("utf-8", "surrogatepass")),)

    def reveal(self) -> str:
        """Return the password itself, for the moment that it is sent."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret('{_MASK}')"

    def __str__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)


def _unpickled(covered: bytes) -> Secret:
    return Secret(base64.b85decode(covered).decode("utf-8", "surrogatepass"))


def require_secret(name: str, value: object) -> None:
    """Raise an InputError for a password that is not a `Secret`; the name is for the error."""
    if not isinstance(value, Secret):
        raise InputError(f"{name} must be a Secret, so that it is never shown: wrap it as Secret(...)")


def read_secretly(read: Callable[[_Given], _T], given: _Given) -> _T:
    """Return ``read(given)`` for an input with a password. An InputError loses its frames: error trackers print locals.

    The caller deletes its own variable, also if this raises.
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
    """How to speak TLS with the broker. Names of files are not looked at here.

    Attributes:
        ca_file: PEM file of the authorities to trust; None for those of the system.
        cert_file: PEM file of our own certificate, for brokers that ask for it.
        key_file: PEM file of its key; None where the key is in `cert_file`.
        key_password: the password of that key.
        verify: whether the broker's certificate must be good. Switch it off for tests only.
        server_name: the name to ask for (SNI) and to find in the certificate; None for the host.
        check_server_name: False sends no name and compares none; the chain is still verified.
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
            raise InputError("a key file without a certificate file: give certfile as well")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """One broker, one vhost, one user.

    Attributes:
        host: name or address; IPv6 without brackets.
        port: TCP port; 5672, or 5671 with TLS, by custom.
        vhost: the virtual host, decoded.
        username: for PLAIN; EXTERNAL takes the name from our certificate.
        password: for PLAIN.
        tls: None for plain TCP.
        heartbeat_s: seconds to ask for; 0 switches heartbeats off, None leaves it to the program.
        connection_timeout_s: seconds until the connection must be open.
        channel_max: most channels per connection; None for what the broker allows.
        frame_max: largest frame in bytes, 4096 or more; None for what the broker allows.
        auth_mechanisms: SASL mechanisms in order of preference; the first that the broker offers is taken.
        connection_name: shown by the management page.
        protocol: AMQP 0-9-1, or the protocol of streams, whose ports are 5552, and 5551 with TLS, by custom.

    Raises:
        InputError: a value outside of its range; the message names it.
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
            raise InputError("host is empty: give a name or an address")
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
        if "\0" in self.username or "\0" in self.password.reveal():
            raise InputError("user name or password holds a NUL: PLAIN cannot carry that")
        if not self.auth_mechanisms or set(self.auth_mechanisms) - {"PLAIN", "EXTERNAL"}:
            raise InputError(f"auth_mechanisms is {self.auth_mechanisms!r}: give PLAIN, EXTERNAL or both")

    @classmethod
    def from_uri(cls, text: str) -> ConnectionSettings:
        """Return the settings of the AMQP URI `text`; `rabbit_chx.amqp.urls.parse_uri` has the rules and errors."""
        from rabbit_chx.amqp.urls import parse_uri

        return parse_uri(text)

    @property
    def masked_url(self) -> str:
        """The address with ``***`` for the password: fit for messages and logs."""
        scheme = _SCHEMES[self.protocol][self.tls is not None]
        address = _masked_address(scheme, self.username, self.host, self.port)
        return f"{address}/{quote(self.vhost, safe='')}"


@dataclass(frozen=True, slots=True)
class ManagementUrl:
    """Where the management API is, and how to log in.

    Attributes:
        host: name or address; IPv6 without brackets.
        port: TCP port; None for that of the scheme, 80 or 443.
        prefix: what is before ``/api`` in each path.
        username: the user; None if the URL has none.
        password: the password; None if the URL has none.
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
        """Return the value of the URL `text`; `rabbit_chx.amqp.urls.parse_management_url` has the rules and errors."""
        from rabbit_chx.amqp.urls import parse_management_url

        return parse_management_url(text)

    def with_login_of(self, settings: ConnectionSettings) -> ManagementUrl:
        """Return the URL with the login of AMQP settings, if it has no login of its own."""
        if self.username is not None or self.password is not None:
            return self
        return replace(self, username=settings.username, password=settings.password)

    @property
    def masked(self) -> str:
        """The address with ``***`` for the password: fit for messages and logs."""
        scheme = "http" if self.tls is None else "https"
        return _masked_address(scheme, self.username or "guest", self.host, self.port)


def _masked_address(scheme: str, username: str, host: str, port: int | None) -> str:
    shown_host = f"[{quote(host, safe=':')}]" if ":" in host else quote(host, safe="")
    shown_port = "" if port is None else f":{port}"
    return f"{scheme}://{quote(username, safe='')}:{_MASK}@{shown_host}{shown_port}"
