"""OAuth 2: a password that is a token, renewed on open connections before it expires.

RabbitMQ takes the token as the password of a login, by ``connection.update-secret`` (AMQP) or a repeated SASL authentication (streams) for an
open connection, and as a bearer token over HTTP. A connection whose token has expired loses its permissions.
rabbitmq-website, OAuth 2 guide; rabbitmq-server v4.3.6, rabbit_reader.erl (``connection.update_secret``) and rabbit_stream_reader.erl
(``handle_frame_post_auth/4``, ``sasl_authenticate``; since 3.13).
"""

from __future__ import annotations

import base64
import json
import logging
import math
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NoReturn, TypeAlias

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.checks import is_finite
from rabbit_chx.errors import InputError, RabbitChxError, UnreachableError

_log = logging.getLogger(__name__)

#: A function without arguments that returns a token and its expiry: an aware datetime, or seconds since 1970, as in the claim ``exp``.
Credentials: TypeAlias = Callable[[], tuple[str, datetime | float]]

#: The part of a token's remaining time after which it is renewed, as in RabbitMQ's Java client (DefaultCredentialsRefreshService).
_RENEW_AFTER = 0.8
#: The pause after a failed renewal of a token that is still valid.
_RETRY_S = 1.0
_COMMAND_S = 30.0
#: The limit of one call of the function. A command, which has a limit of its own, reports it first.
_CALL_S = _COMMAND_S + 1


class TokenSecret(Secret):
    """The tokens of `credentials`, each for the users of one login. Thread-safe."""

    __slots__ = ("_call", "_call_ends_at", "_credentials", "_lock", "_token")
    is_token = True
    _credentials: Credentials
    _lock: threading.Lock
    _token: Secret
    _call: Future[Secret] | None
    _call_ends_at: float

    def __init__(self, credentials: Credentials) -> None:
        super().__init__("")
        self._set(_credentials=credentials, _lock=threading.Lock(), _call=None)
        self._set(_token=Secret("", -math.inf, -math.inf))

    def _set(self, **attributes: object) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)  # a Secret is immutable for its users

    def __reduce__(self) -> tuple[type[TokenSecret], tuple[Credentials]]:  # type: ignore[override]
        return TokenSecret, (self._credentials,)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def reveal(self) -> str:
        """Return the token; see `current`."""
        return self.current().reveal()

    def current(self, wait_s: float = _CALL_S) -> Secret:
        """Return the token and the time of its renewal. If it is due, a thread calls the function for the next one.

        Args:
            wait_s: seconds to wait for the function; the last token is returned if it takes longer, and the next call of this method
                continues to wait. After 31 s in total the function has failed. A failure is repeated while the last token is valid.

        Raises:
            UnreachableError: the function fails, and the last token has expired.
            InputError: the function returns something else than a token and its expiry, and there was no token before.
        """
        with self._lock:
            if time.monotonic() < self._token.renew_at:
                return self._token
            call = self._call
            if call is None:
                call = Future()
                self._set(_call=call, _call_ends_at=time.monotonic() + _CALL_S)
                # The thread of a function that never returns must not keep the process alive.
                threading.Thread(
                    target=self._renew, args=(call,), name="rabbit_chx token", daemon=True
                ).start()
            left_s = self._call_ends_at - time.monotonic()
        try:
            return call.result(min(wait_s, left_s))
        except TimeoutError:
            if wait_s < left_s:
                return self._token
        self._fail(call, UnreachableError(f"the function has not returned within {_CALL_S:g} s"))
        return call.result()

    def _renew(self, call: Future[Secret]) -> None:
        try:
            token, lifetime_s = _checked(self._credentials())
        except BaseException as cause:  # noqa: BLE001  # of the user's function
            self._fail(call, cause)
            return
        with self._lock:
            if self._call is call:
                now = time.monotonic()
                secret = Secret(token, now + _RENEW_AFTER * lifetime_s, now + lifetime_s)
                self._set(_token=secret, _call=None)
                call.set_result(secret)

    def _fail(self, call: Future[Secret], cause: BaseException) -> None:
        # Without the cause itself, and only with texts of this package: others, and tracebacks with local variables, may have a secret.
        problem = str(cause) if isinstance(cause, RabbitChxError) else type(cause).__name__
        with self._lock:
            if self._call is not call:
                return
            self._set(_call=None)
            now = time.monotonic()
            if now < self._token.expires_at:
                _log.warning("credentials: no new token (%s); trying again in %g s", problem, _RETRY_S)
                self._set(_token=replace(self._token, renew_at=now + _RETRY_S))
                call.set_result(self._token)
            elif isinstance(cause, InputError) and self._token.expires_at == -math.inf:
                call.set_exception(InputError(problem))
            else:
                call.set_exception(
                    UnreachableError(f"credentials: no token ({problem}): check the function and its server")
                )


def _checked(returned: object) -> tuple[str, float]:
    """Return the token and its remaining time in seconds."""
    if (
        not isinstance(returned, tuple)
        or len(returned) != 2
        or not isinstance(returned[0], str)
        or not returned[0]
    ):
        raise InputError(f"credentials returned a {type(returned).__name__}: return (token, expiry)")
    token, expiry = returned
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
            f"credentials is a {type(credentials).__name__}: give a function that returns (token, expiry)"
        )
    if any(one.password != ConnectionSettings().password for one in settings):
        raise InputError(f"the URL has a password, and {source} is given: take the password out of the URL")
    token = TokenSecret(credentials)
    return tuple(replace(one, password=token, auth_mechanisms=("PLAIN",)) for one in settings)


def token_command(command: str) -> Credentials:
    """Return credentials that run a command, without a shell. It prints a JWT, or the JSON of a token endpoint.

    The expiry is that of the claim ``exp``, or of ``expires_in`` in the JSON (RFC 6749, section 5.1).
    """
    if not (words := shlex.split(command)):
        raise InputError("the token command is empty: give a command that prints a token")
    return partial(_run, tuple(words))


def _run(words: tuple[str, ...]) -> tuple[str, float]:
    try:
        done = subprocess.run(  # noqa: S603  # the user's command
            words, capture_output=True, timeout=_COMMAND_S, check=True, stdin=subprocess.DEVNULL
        )
    except subprocess.CalledProcessError as cause:
        problem = f"ended with exit code {cause.returncode}"
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_COMMAND_S:g} s"
    except OSError as cause:
        problem = f"cannot be run: {cause.strerror}"
    else:
        return _parse(done.stdout.decode(errors="replace").strip())
    # Without its output, which may contain a secret.
    raise UnreachableError(f"the token command {words[0]!r} {problem}: run it by hand")


def _parse(printed: str) -> tuple[str, float]:
    if printed.startswith("{"):
        try:
            answer = json.loads(printed)
            token = str(answer["access_token"])
            if "expires_in" in answer:
                return token, time.time() + float(answer["expires_in"])
        except (ValueError, LookupError, TypeError):
            _refuse("JSON without access_token, or with another expires_in than seconds")
    else:
        token = printed
    try:
        payload = token.split(".")[1]
        return token, float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (ValueError, LookupError, TypeError):  # binascii.Error is a ValueError
        _refuse("no JWT with the claim exp")


def _refuse(what: str) -> NoReturn:
    raise InputError(
        f"the token command printed {what}: print a JWT, or JSON with access_token and expires_in"
    )
