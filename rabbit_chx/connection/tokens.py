"""OAuth 2: a password that is a token, renewed on open connections before it expires.

RabbitMQ takes the token as the password of a login, by ``connection.update-secret`` (AMQP) or a repeated SASL authentication (streams) for an
open connection, and as a bearer token over HTTP. A connection whose token has expired loses its permissions.
rabbitmq-website, OAuth 2 guide; rabbitmq-server v4.3.6, rabbit_reader.erl (``connection.update_secret``) and rabbit_stream_reader.erl
(``handle_frame_post_auth/4``, ``sasl_authenticate``; since 3.13).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import re
import shlex
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NoReturn, TypeAlias, TypeVar

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.checks import is_finite
from rabbit_chx.connection.failures import has_no_descriptor, no_token, start_thread
from rabbit_chx.errors import AccessRefusedError, InputError, RabbitChxError, UnreachableError
from rabbit_chx.retry import Backoff
from rabbit_chx.subprocesses import OutputTooLongError, run_program
from rabbit_chx.text import error_text

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

#: A function without arguments that returns a token and its expiry: an aware datetime, or seconds since 1970, as in the claim ``exp``.
Credentials: TypeAlias = Callable[[], tuple[str, datetime | float]]

#: The part of a token's remaining time after which it is renewed, as in RabbitMQ's Java client (DefaultCredentialsRefreshService).
_RENEW_AFTER = 0.8
#: The pauses between failed calls of the function.
_PAUSES = Backoff(1.0, 10.0)
#: The longest wait for a new token while the last one is valid.
_RENEWAL_WAIT_S = 1.0
_COMMAND_S = 30.0
_LONGEST_OUTPUT = 1 << 20
#: The limit of one call of the function. A command, which has a limit of its own, reports it first.
_CALL_S = _COMMAND_S + 1
_NO_TOKEN = Secret("", -math.inf, -math.inf)
#: What a header of HTTP takes as a token: ASCII on one line (RFC 6750, section 2.1, has less). The error of a library would show another one.
_TOKEN = re.compile(r"[ -~]+")


class TokenSecret(Secret):
    """The tokens of `credentials`, each for the users of one login. Thread-safe.

    A thread calls the function when a token is due. A failed call is repeated after a pause, and its error until then.

    Args:
        credentials: the function.
        source: its argument, option or variable, for errors.
    """

    is_token = True
    _credentials: Credentials
    _source: str
    _lock: threading.Lock
    _token: Secret
    _call: Future[None] | None
    _call_ends_at: float
    _failures: int
    _refused: int
    _problem: tuple[type[RabbitChxError], str] | None

    def __init__(self, credentials: Credentials, source: str = "credentials") -> None:
        super().__init__("")
        self._set(_credentials=credentials, _source=source, _lock=threading.Lock(), _token=_NO_TOKEN)
        self._set(_call=None, _call_ends_at=math.inf, _failures=0, _refused=0, _problem=None)

    def _set(self, **attributes: object) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)  # a Secret is immutable for its users

    def __reduce__(self) -> tuple[type[TokenSecret], tuple[Credentials, str]]:  # type: ignore[override]
        return TokenSecret, (self._credentials, self._source)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        """The source of the tokens and its function or command, for errors."""
        function = self._credentials
        name = getattr(function, "__name__", type(function).__name__)
        return f"{self._source} ({self._kind} {name!r})"

    @property
    def _kind(self) -> str:
        return "command" if isinstance(self._credentials, _Command) else "function"

    @property
    def pending(self) -> str:
        """The name, if a login has to wait for the function; else ""."""
        with self._lock:
            is_valid = time.monotonic() < self._token.expires_at
            return "" if is_valid or self._call is None else self.name

    def reveal(self) -> str:
        """Return the token; see `current`."""
        return self.current().reveal()

    def latest(self) -> Secret:
        """Return the last token and the time of its renewal, for an open connection; it may have expired. If it is due, the function is called."""
        self._begin()
        return self._token

    def current(self, wait_s: float = _CALL_S) -> Secret:
        """Return a token for a login. The wait for a new one is shorter while the last one is valid.

        Raises:
            UnreachableError: the function fails, or has not returned within `wait_s` seconds, and the last token has expired or was refused.
            InputError: the function returns something else than a token and its expiry, and there was no token before.
        """
        if call := self._begin():
            wait([call], self._longest_wait_s(wait_s))
        return self._outcome(wait_s)

    async def current_async(self, wait_s: float) -> Secret:
        """Return a token as `current` does. No thread waits, which would delay the end of the event loop."""
        if call := self._begin():
            await asyncio.wait([asyncio.wrap_future(call)], timeout=self._longest_wait_s(wait_s))
        return self._outcome(wait_s)

    @contextmanager
    def watch_refusals(self, token: Secret, code: int = 403) -> Iterator[None]:
        """Log in with a token in this block. One that the broker refuses with this code is not used again; the next one may be tried.

        Raises:
            AccessRefusedError: it is the second one in a row, by whichever connection.
        """
        try:
            yield
        except AccessRefusedError as refusal:
            if refusal.reply_code != code:
                raise
            if self._refuse(token) > 1:
                what = str(refusal).split(": check user", 1)[0]
                raise AccessRefusedError(
                    f"{what}, also with a new token of {self.name}: check the signature, audience, scopes and expiry of its tokens, and "
                    "compare the clocks",
                    reply_code=code,
                ) from None
            _log.warning("the broker refuses a token; asking %s for a new one", self.name)
        else:
            self._set(_refused=0)

    def _refuse(self, token: Secret) -> int:
        """Mark a token as refused, unless it was replaced; return the number of refused tokens in a row."""
        with self._lock:
            if self._token == token and self._token.expires_at > -math.inf:
                self._set(_token=replace(token, renew_at=-math.inf, expires_at=-math.inf))
                self._set(_refused=self._refused + 1)
            return self._refused

    def _begin(self) -> Future[None] | None:
        """Return the call under way, if a new token is due; start one unless the last one has just failed."""
        self._end_late_call()
        with self._lock:
            now = time.monotonic()
            if now < self._token.renew_at:
                return None
            if self._call is not None:
                return self._call
            call: Future[None] = Future()
            self._set(_call=call, _call_ends_at=now + _CALL_S, _problem=None)
        # The thread of a function that never returns must not keep the process alive.
        thread = threading.Thread(target=self._renew, args=(call,), name="rabbit_chx token", daemon=True)
        try:
            start_thread(thread, self.name)
        except UnreachableError as cause:
            self._fail(call, cause)
        return call

    def _longest_wait_s(self, wait_s: float) -> float:
        now = time.monotonic()
        is_valid = now < self._token.expires_at
        limit = self._call_ends_at - (_CALL_S - _RENEWAL_WAIT_S if is_valid else 0.0)
        return max(0.0, min(wait_s, limit - now))

    def _end_late_call(self) -> None:
        call = self._call
        if call is not None and time.monotonic() >= self._call_ends_at:
            self._fail(call, UnreachableError(f"the {self._kind} has not returned within {_CALL_S:g} s"))

    def _outcome(self, wait_s: float) -> Secret:
        self._end_late_call()
        with self._lock:
            if time.monotonic() < self._token.expires_at:
                return self._token
            late = f"{no_token(self.name, wait_s)}, or raise the connection timeout"
            kind, problem = self._problem or (UnreachableError, late)
        raise kind(problem)

    def _renew(self, call: Future[None]) -> None:
        try:
            token, lifetime_s = _check_returned(self._credentials())
        except BaseException as cause:  # noqa: BLE001  # of the user's function
            self._fail(call, cause)
            return
        with self._lock:
            if self._call is call:
                now = time.monotonic()
                secret = Secret(token, now + _RENEW_AFTER * lifetime_s, now + lifetime_s)
                self._set(_token=secret, _call=None, _failures=0)
                call.set_result(None)

    def _fail(self, call: Future[None], cause: BaseException) -> None:
        # Without the cause itself, and only with texts of this package: others, and tracebacks with local variables, may have a secret.
        problem = error_text(cause) if isinstance(cause, RabbitChxError) else type(cause).__name__
        with self._lock:
            if self._call is not call:
                return
            now = time.monotonic()
            pause_s = _PAUSES.delay_s(self._failures)
            if isinstance(cause, InputError) and self._token == _NO_TOKEN:
                self._set(_problem=(InputError, problem))
            else:
                text = f"{self.name}: no token ({problem}): check the {self._kind} and its server"
                self._set(_problem=(UnreachableError, text))
                if now < self._token.expires_at:
                    _log.warning("%s: no new token (%s); again in %g s", self._source, problem, pause_s)
            token = replace(self._token, renew_at=now + pause_s)
            self._set(_token=token, _call=None, _failures=self._failures + 1)
            call.set_result(None)


# -- logins


def _start_countdown(timeout_s: float) -> Callable[[], float]:
    """Return a function that returns what is left of a timeout, in seconds."""
    deadline = time.monotonic() + timeout_s
    return lambda: min(max(round(deadline - time.monotonic(), 1), 0.1), timeout_s)


def log_in(settings: ConnectionSettings, connect: Callable[[ConnectionSettings], _T]) -> _T:
    """Return ``connect(settings)``, where a token is the current one. If the broker refuses it, the next one is tried.

    ``connection_timeout_s`` bounds it, including the wait for a token.

    Raises:
        AccessRefusedError: the broker refuses a new token, too.
        RabbitChxError: as in `TokenSecret.current`, or of `connect`.
    """
    password = settings.password
    left_s = _start_countdown(settings.connection_timeout_s)
    if not isinstance(password, TokenSecret):
        return connect(settings)
    while True:
        token = password.current(left_s())
        with password.watch_refusals(token):
            return connect(replace(settings, password=token, connection_timeout_s=left_s()))


async def log_in_async(
    settings: ConnectionSettings, connect: Callable[[ConnectionSettings], Awaitable[_T]]
) -> _T:
    """Log in as `log_in` does."""
    password = settings.password
    left_s = _start_countdown(settings.connection_timeout_s)
    if not isinstance(password, TokenSecret):
        return await connect(settings)
    while True:
        token = await password.current_async(left_s())
        with password.watch_refusals(token):
            return await connect(replace(settings, password=token, connection_timeout_s=left_s()))


def log_in_to_api(url: ManagementUrl, timeout_s: float, ask: Callable[[Secret], _T]) -> _T:
    """Return ``ask(header)`` with the header ``Authorization``, as `log_in` does; `timeout_s` bounds each wait for a token."""
    password = url.password
    if not isinstance(password, TokenSecret):
        return ask(url.authorization())
    while True:
        token = password.current(timeout_s)
        with password.watch_refusals(token, 401):
            return ask(Secret(f"Bearer {token.reveal()}"))


def _check_returned(returned: object) -> tuple[str, float]:
    """Return the token and its remaining time in seconds."""
    if (
        not isinstance(returned, tuple)
        or len(returned) != 2
        or not isinstance(returned[0], str)
        or not returned[0]
    ):
        raise InputError(f"credentials returned a {type(returned).__name__}: return (token, expiry)")

    token, expiry = returned
    if _TOKEN.fullmatch(token) is None:
        raise InputError(
            "credentials returned a token with a line break or another character that no token has: return the token alone"
        )

    if isinstance(expiry, datetime) and expiry.tzinfo is not None:
        expiry = expiry.timestamp()
    if not is_finite(expiry):
        raise InputError(
            f"credentials returned a {type(expiry).__name__} as the expiry: return an aware datetime, or seconds since 1970"
        )

    lifetime_s = expiry - time.time()
    if lifetime_s <= 0:
        raise InputError(
            f"credentials returned a token that expired {-lifetime_s:.0f} s ago: return a new one, and compare the clocks"
        )

    return token, lifetime_s


def with_credentials(
    targets: Iterable[ConnectionSettings], credentials: Credentials | None, source: str = "credentials"
) -> tuple[ConnectionSettings, ...]:
    """Return settings that log in with the tokens of `credentials`, which they share; unchanged for None.

    Args:
        targets: settings without a password.
        credentials: the function.
        source: the name of its argument or variable, for errors.

    Raises:
        InputError: a target has a password, too, or `credentials` is not a function.
    """
    settings = tuple(targets)
    if credentials is None:
        return settings
    if not callable(credentials):
        raise InputError(
            f"credentials is a {type(credentials).__name__}: pass a function that returns (token, expiry)"
        )
    if any(one.password != ConnectionSettings().password for one in settings):
        raise InputError(f"the URL has a password, and {source} is given: take the password out of the URL")
    token = TokenSecret(credentials, source)
    return tuple(replace(one, password=token, auth_mechanisms=("PLAIN",)) for one in settings)


def token_command(command: str, source: str = "the token command") -> Credentials:
    """Return credentials that run a command, without a shell. It prints a JWT, or the JSON of a token endpoint.

    The expiry is that of the claim ``exp``, or of ``expires_in`` in the JSON (RFC 6749, section 5.1). `source` is its option or variable, for
    errors.
    """
    try:
        words = shlex.split(command)
    except ValueError as cause:  # the command itself may contain a secret
        raise InputError(
            f"{source} cannot be split into words ({str(cause).lower()}): close each quote, and write \\\\ for a backslash, as in a shell"
        ) from None
    if not words:
        raise InputError(f"{source} is empty: pass a command that prints a token")
    return _Command(tuple(words))


@dataclass(frozen=True, slots=True, repr=False)
class _Command:
    words: tuple[str, ...]

    @property
    def __name__(self) -> str:
        """The program; a variable that names none may hold the token itself."""
        return self.words[0] if shutil.which(self.words[0]) else "of no program"

    def __call__(self) -> tuple[str, float]:
        try:
            done = run_program(self.words, _COMMAND_S, _LONGEST_OUTPUT)
        except subprocess.TimeoutExpired:
            problem = f"did not end within {_COMMAND_S:g} s"
        except OutputTooLongError:
            problem = f"printed more than {_LONGEST_OUTPUT:,} bytes"
        except OSError as cause:
            problem = f"cannot be run: {cause.strerror}"
        except ValueError:
            problem = "cannot be run: a NUL is in it"
        else:
            if done.returncode == 0:
                return _parse(done.stdout.decode(errors="replace").strip())
            problem = f"ended with exit code {done.returncode}"
        # Without its output, which may contain a secret.
        raise UnreachableError(f"the token command {self.__name__!r} {problem}: run it by hand")


def _parse(printed: str) -> tuple[str, float]:
    if printed.startswith("{"):
        try:
            answer = json.loads(printed)
            token = str(answer["access_token"])
            expiry = time.time() + float(answer["expires_in"]) if "expires_in" in answer else None
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            _refuse("JSON without access_token, or with another expires_in than seconds")
    else:
        token = printed
        expiry = None

    if _TOKEN.fullmatch(token) is None:
        _refuse("a token with a line break or another character that no token has")
    if expiry is not None:
        return token, expiry

    try:
        payload = token.split(".")[1]
        return token, float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # binascii.Error is a ValueError
        _refuse("no JWT with the claim exp")


def _refuse(what: str) -> NoReturn:
    raise InputError(
        f"the token command printed {what}: print only a JWT, or JSON with access_token and expires_in"
    )


# -- Connection settings for Python's ssl module and for aio-pika


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the `ssl.SSLContext` for these settings; raise an InputError for an unusable certificate file."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as cause:  # ssl.SSLError is an OSError
        raise _unusable(f"the CA certificates in {tls.ca_file!r}", cause) from None
    if not (tls.verify and tls.check_server_name):
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        password = tls.key_password.reveal() if tls.key_password else None
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=password or "")
        except OSError as cause:
            what = f"the client certificate {tls.cert_file!r} with the key {tls.key_file!r}"
            raise _unusable(what, cause) from None
    return context


def _unusable(what: str, cause: OSError) -> InputError | UnreachableError:
    kind = UnreachableError if has_no_descriptor(cause) else InputError
    return kind(f"{what} cannot be used: {cause}")


def server_name(host: str, tls: TlsSettings) -> str | None:
    """Return the name for SNI and the check of the certificate; None for neither."""
    return (tls.server_name or host) if tls.check_server_name else None


def aio_pika_arguments(target: str | ConnectionSettings) -> dict[str, Any]:
    """Return arguments of `aio_pika.connect` and `aio_pika.connect_robust` for an AMQP URI or settings, the `target`.

    aio-pika's URL parser ignores ``cacertfile``, ``verify`` and ``connection_timeout``, so it does not get the URL. A setting that aio-pika
    (aiormq 7.2) would ignore is an error here.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: aio-pika does not support a setting, or the TLS files cannot be used.

    Example::

        connection = await aio_pika.connect_robust(**aio_pika_arguments(url))
    """
    settings = ConnectionSettings.of(target)
    _refuse_what_it_ignores(settings)
    arguments: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "login": settings.username,
        "password": settings.password.reveal(),
        "virtualhost": settings.vhost,
        "timeout": settings.connection_timeout_s,
        "auth": settings.auth_mechanisms[0],
    }
    if settings.tls is not None:
        arguments |= {"ssl": True, "ssl_context": tls_context(settings.tls)}
    if settings.heartbeat_s is not None:
        arguments["heartbeat"] = settings.heartbeat_s
    if settings.connection_name is not None:
        arguments["name"] = settings.connection_name
    return arguments


def _refuse_what_it_ignores(settings: ConnectionSettings) -> None:
    ignored = {
        "channel_max": settings.channel_max is not None,
        "frame_max": settings.frame_max is not None,
        "a second auth_mechanism": len(settings.auth_mechanisms) > 1,
        "server_name_indication": settings.tls is not None
        and settings.tls.check_server_name
        and settings.tls.server_name not in {None, settings.host},
    }
    for setting, value in ignored.items():
        if value:
            raise InputError(f"{settings.masked_url}: aio-pika cannot follow {setting}: leave it out")
