"""Tokens: when they are renewed, what is refused, and that none is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from unittest.mock import AsyncMock, Mock

import pytest

from rabbit_chx import Publisher, StreamReader
from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.connection import tokens
from rabbit_chx.connection.failures import connect_timeout_error
from rabbit_chx.connection.tokens import TokenSecret, with_credentials
from rabbit_chx.errors import AccessRefusedError, BrokerTimeoutError, InputError, UnreachableError
from rabbit_chx.streams import ReadLimits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the tokens: its first item is the time."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def counting(clock: list[float]) -> Callable[[], tuple[str, float]]:
    numbers = count()
    return lambda: (f"token-{next(numbers)}", clock[0] + 100)


def test_a_token_is_renewed_after_four_fifths_of_its_time(clock: list[float]) -> None:
    secret = TokenSecret(counting(clock))
    first = secret.current()
    assert (first.reveal(), first.renew_at) == ("token-0", 1080.0)
    clock[0] = 1079.9
    assert secret.current() is first
    clock[0] = 1080.0
    assert (secret.reveal(), secret.current().renew_at) == ("token-1", 1160.0)


def test_the_settings_of_several_addresses_share_a_token(clock: list[float]) -> None:
    targets = with_credentials([ConnectionSettings(), ConnectionSettings(port=5673)], counting(clock))
    assert [target.password.reveal() for target in targets] == ["token-0", "token-0"]
    assert targets[1].password.current().renew_at == 1080.0
    assert ConnectionSettings().password.current().renew_at == float("inf")


class UnprintableError(UnreachableError):
    """An error of a user without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("renewal", "problem"),
    [
        (Mock(side_effect=OSError("hidden")), "OSError"),
        (Mock(side_effect=SystemExit), "SystemExit"),
        (Mock(side_effect=UnprintableError("hidden")), "UnprintableError"),
        (lambda: ("hidden", 1000.0), "credentials returned a token that expired .* s ago: return .*"),
        (tokens.token_command("echo hidden"), "the token command printed no JWT with the claim exp: .*"),
    ],
    ids=["error", "exit", "error without a text", "expired token", "command"],
)
def test_a_failed_renewal_is_repeated_until_the_token_expires(
    clock: list[float], caplog: pytest.LogCaptureFixture, renewal: tokens.Credentials, problem: str
) -> None:
    functions: list[tokens.Credentials] = [lambda: ("token", 1100.0)]
    secret = TokenSecret(lambda: functions[-1]())  # noqa: PLW0108  # of the function at that time
    assert secret.reveal() == "token"
    functions.append(renewal)
    clock[0] = 1080.0
    again = secret.current()
    assert (again.reveal(), again.renew_at) == ("token", 1081.0)
    assert re.search(rf"no new token \({problem}\); again in 1 s", caplog.text)
    clock[0] = 1100.0
    with pytest.raises(UnreachableError, match=rf"no token \({problem}\): check the function") as caught:
        secret.reveal()
    assert caught.value.__cause__ is None
    assert "hidden" not in f"{caught.value}{caplog.text}"
    functions.append(lambda: ("new", 1200.0))
    clock[0] += 2.0
    assert secret.reveal() == "new"


def test_a_function_that_fails_is_called_again_after_growing_pauses(clock: list[float]) -> None:
    """They begin again after a token."""
    calls = list[float]()

    def token() -> tuple[str, float]:
        calls.append(clock[0])
        if len(calls) not in {1, 13}:
            raise OSError
        return "token", clock[0] + 100

    secret = TokenSecret(token)
    secret.current()
    while clock[0] < 1248:  # five times a second, as a client that connects again
        clock[0] = round(clock[0] + 0.2, 1)
        secret.latest()
        with suppress(UnreachableError):
            secret.current()
    growing = [0, 1, 3, 7, 15, 25, 35, 45, 55, 65, 75]
    assert calls[:12] == [1000, *(1080 + pause for pause in growing)]
    assert calls[12:] == [1165, 1245, 1246, 1248]
    clock[0] = 1265
    with pytest.raises(UnreachableError, match=r"no token \(OSError\)"):
        secret.current()
    with pytest.raises(UnreachableError, match=r"no token \(OSError\)"):  # also without a call
        secret.current()


def test_nobody_waits_for_a_renewal_that_takes_long(clock: list[float]) -> None:
    is_called, may_return, calls = threading.Event(), threading.Event(), list[str]()

    def credentials() -> tuple[str, float]:
        calls.append(threading.current_thread().name)
        if len(calls) > 1:
            is_called.set()
            assert may_return.wait(60)
        return f"token-{len(calls)}", clock[0] + 100

    secret = TokenSecret(credentials)
    assert secret.reveal() == "token-1"
    clock[0] = 1080.0
    for _ in range(3):
        assert secret.current(wait_s=0).reveal() == "token-1"
        assert is_called.wait(60)
    assert calls == ["rabbit_chx token"] * 2
    may_return.set()
    assert secret.reveal() == "token-2"


def test_a_function_that_does_not_return_has_failed_after_31_s(clock: list[float]) -> None:
    is_over, calls = threading.Event(), list[int]()

    def credentials() -> tuple[str, float]:
        calls.append(1)
        if len(calls) in {2, 3}:
            is_over.wait(60)
        return f"token-{len(calls)}", clock[0] + 100

    secret = TokenSecret(credentials)
    secret.current()
    clock[0] = 1080.0
    secret.current(wait_s=0)
    clock[0] = 1099.0
    assert secret.current(wait_s=0).reveal() == "token-1"
    clock[0] = 1111.0
    assert secret.pending == "credentials (function 'credentials')"
    with pytest.raises(UnreachableError, match=r"no token \(the function has not returned within 31 s\)"):
        secret.current()
    assert not secret.pending
    clock[0] += 1
    assert secret.latest().reveal() == "token-1"  # the next call, which does not return either
    with pytest.raises(UnreachableError, match=r"\(function 'credentials'\): no token within 0 s: run it"):
        secret.current(wait_s=0)
    clock[0] += 31
    secret.latest()  # which is enough to give that call up
    clock[0] += 2
    assert secret.reveal() == "token-4"
    is_over.set()


def test_a_login_names_the_function_that_it_waits_for() -> None:
    is_over = threading.Event()

    def slow() -> tuple[str, float]:
        is_over.wait(60)
        return "token", 9e9

    (settings,) = with_credentials([ConnectionSettings(connection_timeout_s=0.2)], slow)
    waits = r"^credentials \(function 'slow'\): no token within 0\.2 s: run it by hand"
    with pytest.raises(UnreachableError, match=waits):
        tokens.log_in(settings, lambda _: None)
    with pytest.raises(UnreachableError, match=waits):
        asyncio.run(tokens.log_in_async(settings, AsyncMock()))
    assert re.match(waits, str(connect_timeout_error(settings)))
    is_over.set()
    tokens.log_in(replace(settings, connection_timeout_s=60), lambda _: None)
    assert "check host, port and firewall" in str(connect_timeout_error(settings))


def test_a_reader_waits_for_a_token_no_longer_than_its_timeout(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt names the function; so does the last error. The time of the waits is the test's."""
    is_over, waits = threading.Event(), list[float]()

    def slow() -> tuple[str, float]:
        is_over.wait(60)
        return "token", 9e9

    def wait(_: object, timeout: float) -> None:
        waits.append(timeout)
        clock[0] += timeout

    monkeypatch.setattr(tokens, "wait", wait)
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    with pytest.raises(UnreachableError, match=r"credentials \(function 'slow'\): no token within"):
        StreamReader("rabbitmq-stream://127.0.0.1:1", "s", credentials=slow, limits=ReadLimits(timeout_s=20))
    is_over.set()
    assert 1000 < clock[0] <= 1020
    assert max(waits) <= 10


# -- refused tokens


class Door:
    """Refuses logins with tokens that begin with "bad"."""

    def __init__(self, code: int | None = 403) -> None:
        self.code = code
        self.tokens = list[str]()

    def __call__(self, settings: ConnectionSettings) -> str:
        self.tokens.append(settings.password.reveal())
        if self.tokens[-1].startswith("bad"):
            raise AccessRefusedError(
                "amqp://h: refused (words): check user name, password and auth_mechanism",
                reply_code=self.code,
            )
        return self.tokens[-1]

    def ask(self, header: Secret) -> str:
        scheme, _, token = header.reveal().partition(" ")
        assert scheme == "Bearer"
        return self(ConnectionSettings(password=Secret(token)))


def enter(settings: ConnectionSettings, door: Door, how: str) -> str:
    if how == "async":
        return asyncio.run(tokens.log_in_async(settings, AsyncMock(side_effect=door)))
    if how == "API":
        url = ManagementUrl.of("http://localhost:15672").with_login_of(settings)
        return tokens.log_in_to_api(url, 5.0, door.ask)
    return tokens.log_in(settings, door)


def given(*tokens: str) -> Callable[[], tuple[str, float]]:
    rest = iter(tokens)
    return lambda: (next(rest), 9e9)


@pytest.mark.parametrize(("how", "code"), [("sync", 403), ("async", 403), ("API", 401)])
def test_a_refused_token_is_asked_for_again_once(how: str, code: int) -> None:
    (settings,) = with_credentials([ConnectionSettings()], given("bad", "good", "good 2", "bad 2", "good 3"))
    password = settings.password
    assert isinstance(password, TokenSecret)
    door = Door(code)
    assert enter(settings, door, how) == enter(settings, door, how) == "good"
    password._refuse(Secret("bad"))  # of a slow connection: it was replaced
    assert enter(settings, door, how) == "good"
    password._refuse(Secret("good"))
    assert enter(settings, door, how) == "good 2"  # a login that succeeded begins a new count
    password._refuse(Secret("good 2"))
    with pytest.raises(AccessRefusedError) as caught:
        enter(settings, door, how)
    assert str(caught.value).startswith(
        "amqp://h: refused (words), also with a new token of credentials (function '<lambda>'): check the signature"
    )
    assert caught.value.reply_code == code
    assert caught.value.__cause__ is None
    assert enter(settings, door, how) == "good 3"
    assert door.tokens == ["bad", "good", "good", "good", "good 2", "bad 2", "good 3"]


def test_the_second_refusal_may_be_that_of_another_attempt() -> None:
    """The first attempt may have no time left for the second login."""
    (settings,) = with_credentials([ConnectionSettings()], given("bad 1", "bad 2", "bad 3"))
    door = Door()

    def late(settings: ConnectionSettings) -> str:
        if door.tokens:
            raise BrokerTimeoutError("not in time")
        return door(settings)

    with pytest.raises(BrokerTimeoutError):
        tokens.log_in(settings, late)
    with pytest.raises(AccessRefusedError, match="also with a new token"):
        tokens.log_in(settings, door)
    assert door.tokens == ["bad 1", "bad 2"]


def test_other_refusals_are_not_about_the_token() -> None:
    (settings,) = with_credentials([ConnectionSettings()], given("bad"))
    for code in (None, 530):
        with pytest.raises(AccessRefusedError, match="check user name"):
            tokens.log_in(settings, Door(code))
    with pytest.raises(AccessRefusedError, match="check user name"):
        tokens.log_in(ConnectionSettings(password=Secret("bad")), Door())
    assert settings.password.reveal() == "bad"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("token", "returned a str: return"),
        (("", 9e9), "returned a tuple: return"),
        (("token", None), "a NoneType as the expiry: return an aware datetime"),
        ((9e9, "token"), "returned a tuple: return"),
        (("Bearer", "hidden"), "a str as the expiry: return an aware datetime"),
        (("token", datetime(2100, 1, 1)), "return an aware datetime"),  # noqa: DTZ001
        (("token", float("nan")), "return an aware datetime"),
        (("token", 1.0), "expired .* s ago: return a new one"),
    ],
)
def test_what_credentials_must_not_return(returned: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        TokenSecret(lambda: returned).reveal()  # type: ignore[arg-type, return-value]
    assert "hidden" not in str(caught.value)


def test_credentials_replace_a_password() -> None:
    for urls in ("amqp://ann:secret@localhost", ["amqp://ann@localhost", "amqp://ann:secret@other"]):
        with pytest.raises(InputError, match="the URL has a password, and credentials is given"):
            Publisher(urls, "x", credentials=lambda: ("token", 9e9))
    with pytest.raises(InputError, match="credentials is a str: pass a function"):
        with_credentials([ConnectionSettings()], "token")  # type: ignore[arg-type]
    settings = ConnectionSettings.from_uri("amqps://localhost?auth_mechanism=external&auth_mechanism=plain")
    (of_token,) = with_credentials([settings], lambda: ("token", 9e9))
    assert of_token.auth_mechanisms == ("PLAIN",), "whatever the URL says"


def test_no_token_is_shown_or_pickled() -> None:
    secret = TokenSecret(tokens.token_command("cat /token"))
    object.__setattr__(secret, "_token", Secret("hidden"))
    pickled = pickle.dumps(secret)
    assert b"hidden" not in pickled
    assert isinstance(pickle.loads(pickled), TokenSecret)  # noqa: S301
    secret = TokenSecret(lambda: ("hidden", 9e9))
    assert secret.reveal() == "hidden"
    (settings,) = with_credentials([ConnectionSettings()], lambda: ("hidden", 9e9))
    assert "hidden" not in f"{secret!r} {secret} {settings!r} {settings.masked_url}"


# -- commands


def jwt(claims: object) -> str:
    return f"head.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.signature"


def test_a_command_prints_a_jwt_or_the_answer_of_a_token_endpoint() -> None:
    token = jwt({"exp": 4_000_000_000})
    assert tokens.token_command(f"echo {token}")() == (token, 4_000_000_000)
    name, expiry = tokens.token_command("""echo '{"access_token": "opaque", "expires_in": 300}'""")()
    assert name == "opaque"
    assert expiry == pytest.approx(time.time() + 300, abs=60)
    as_datetime = TokenSecret(lambda: ("token", datetime.now(UTC) + timedelta(seconds=100)))
    assert as_datetime.current().renew_at == pytest.approx(time.monotonic() + 80, abs=15)


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("", InputError, "^TOKENS is empty: pass a command"),
        ("echo 'hidden", InputError, r"^TOKENS cannot be split into words \(no closing quotation\): close"),
        ("echo hidden\\", InputError, r"^TOKENS cannot be split into words \(no escaped character\): close"),
        ("echo hidden", InputError, "printed no JWT with the claim exp"),
        (f"echo {jwt({})}", InputError, "printed no JWT with the claim exp"),
        ("echo '{\"hidden\": 1}'", InputError, "printed JSON without access_token"),
        ("""echo '{"access_token": "hidden", "expires_in": "x"}'""", InputError, "another expires_in than"),
        ("false hidden", UnreachableError, "'false' ended with exit code 1: run it by hand"),
        ("/no/such hidden", UnreachableError, "cannot be run: No such file"),
    ],
)
def test_commands_that_give_no_token(command: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        tokens.token_command(command, "TOKENS")()
    assert "hidden" not in str(caught.value)


def test_without_a_further_thread_a_valid_token_stays_and_none_is_an_error(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = TokenSecret(counting(clock))
    assert secret.current().reveal() == "token-0"
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    clock[0] += 90.0
    assert secret.current().reveal() == "token-0"
    with pytest.raises(UnreachableError, match=r"no token \(.*starts no further thread .*ulimit -u"):
        TokenSecret(counting(clock)).current()
