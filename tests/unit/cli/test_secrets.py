"""A law: whatever programs, answers and variables say, a command ends with a sentence, and a secret in them is in no output."""

from __future__ import annotations

import io
import json
import logging
import random
import re
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rabbit_chx import ConsumerGroup, HashRing, Release, StreamGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.broker import DiagnosticsRing, ring_source
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.reading import read_release
from rabbit_chx.cli import main
from rabbit_chx.cli.app import app
from rabbit_chx.connection import tokens
from rabbit_chx.connection.tokens import TokenSecret, token_command, with_credentials
from rabbit_chx.errors import InputError
from rabbit_chx.subprocesses import OutputTooLongError

CANARY = "c4nary-XYZ-5ecret-0123"
CASES = 500
PIECES = [
    "\n", "\r\n", "\0", "\x1b[31m", " ", "WARNING: no configuration\n", "€", "\udcff", "{", "}", "[", '"', ":", ",", "eyJhbGciOiJSUzI1NiJ9.",
    "e30", "eyJleHAiOjk5OTk5OTk5OTk5fQ", ".", '{"access_token": ', '"expires_in": 3600', '"reason": "', "{error,", "{ring,[", "Ring index: ",
    "HTTP/1.1 200 OK\r\n\r\n", "Error: ", "://", "@", "%", "=", "'", "\\",
]  # fmt: skip


def noise(rng: random.Random) -> str:
    """Return a random text that contains the canary."""
    pieces = rng.choices(PIECES, k=rng.randrange(5))
    pieces.insert(rng.randrange(len(pieces) + 1), CANARY)
    return "".join(pieces)


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def answer_of(rng: random.Random) -> object:
    """Return JSON with the canary where an API has something else."""
    text = noise(rng)
    values: list[object] = [
        text,
        [text],
        {"reason": text},
        {text: 1},
        {"name": text},
        {"rabbitmq_version": text},
    ]
    values += [
        [{"name": [text], "state": text}],
        {"error": text, "reason": [text]},
        [{"name": "khepri_db", "state": {}}, text],
    ]
    return rng.choice(values)


def asks_with_a_token(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    text = noise(rng)
    kinds = [
        text,
        json.dumps({"access_token": text, "expires_in": 3600}),
        json.dumps({"access_token": CANARY, "expires_in": text}),
    ]
    kinds += [
        json.dumps({"access_token": [text]}),
        json.dumps({"note": text}),
        f'{{"access_token": "{text}"}}',
    ]
    printed = encoded(rng.choice(kinds))
    answer = SimpleNamespace(stdout=printed, stderr=printed, returncode=0)
    failure = SimpleNamespace(stdout=printed, stderr=printed, returncode=1)
    effects = [
        answer,
        answer,
        answer,
        answer,
        failure,
        OSError(2, "No such file or directory", text),
        ValueError(text),
        OutputTooLongError(text),
        subprocess.TimeoutExpired([text], 1, printed, printed),
    ]
    monkeypatch.setattr(tokens, "run_program", Mock(side_effect=[rng.choice(effects)]))
    credentials = token_command("cat /token")
    if rng.random() < 0.3:
        credentials = lambda: (text, time.time() + 3600)  # noqa: E731
    (settings,) = with_credentials([ConnectionSettings()], credentials)
    url = ManagementUrl("127.0.0.1", 1).with_login_of(settings)
    assert isinstance(url.password, TokenSecret)
    Management(url, timeout_s=5).get("overview")


def reads_an_answer(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(noise(rng)) if rng.random() < 0.4 else json.dumps(answer_of(rng)).encode()
    if rng.random() < 0.2:
        content = content[: content.rfind(CANARY.encode()) + len(CANARY) + rng.randrange(3)]
    status = rng.choice(
        ["200 OK", "200 OK", "400 Bad Request", "401 No", "404 Not Found", "500 No", "302 Found", noise(rng)]
    )
    version = rng.choice(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", f"HTTP/{CANARY}", f"HTTP/1.{CANARY}"])
    head = f"{version} {status}\r\nContent-Length: {len(content)}\r\nX: {CANARY}\r\n\r\n".encode(
        errors="replace"
    )
    sent = encoded(noise(rng)) if rng.random() < 0.2 else head + content
    management = Management(f"http://user:{CANARY}@127.0.0.1:1", timeout_s=5)
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: Peer(sent))
    ask: Callable[[], object] = rng.choice(
        [
            lambda: read_release(management),
            lambda: management.get_list("exchanges", "/", fields={"name": str, "arguments?": dict}),
            lambda: management.get("overview", fields={"name": str, "node?": {"a": int}}),
        ]
    )
    ask()


class Peer:
    """A socket whose other side has sent some bytes."""

    def __init__(self, sent: bytes) -> None:
        self._file = io.BufferedReader(io.BytesIO(sent))

    def makefile(self, *_: object, **__: object) -> object:
        return self._file

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def gettimeout(self) -> float:
        return 5.0


def reads_a_ring(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    text = noise(rng)
    printed = rng.choice(
        [text, f"{{ring,[{text}]}}", f"Ring index: 0, queue: {text}", f"{{rings,[{text}],undefined}}"]
    )
    answer, complaint = encoded(printed), encoded(rng.choice(["", text]))
    done = subprocess.CompletedProcess([text], rng.choice([0, 0, 1]), answer, complaint)
    effects = [
        done,
        done,
        done,
        OSError(2, "No such file or directory", text),
        ValueError(text[:1]),
        OutputTooLongError(text),
        subprocess.TimeoutExpired([text], 1, answer, complaint),
    ]
    monkeypatch.setattr(ring_source, "run_program", Mock(side_effect=[rng.choice(effects)]))
    source = DiagnosticsRing("docker exec mq")
    rng.choice(
        [
            lambda: source.read("/", "x"),
            lambda: source.read_all("/", ["x"]),
            lambda: source.read_exchange("/", "x"),
        ]
    )()


OUTSIDE = {"token": asks_with_a_token, "answer": reads_an_answer, "rabbitmqctl": reads_a_ring}


def law(shown: str, code: int) -> None:
    assert CANARY not in shown
    assert code in {2, 69, 70, 77}, shown
    assert "this is a bug" not in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=OUTSIDE)
def test_a_secret_in_what_a_program_or_a_server_answers_is_in_no_output(
    outside: Callable[[random.Random, pytest.MonkeyPatch], None],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    for seed in range(CASES):
        rng = random.Random(seed)  # noqa: S311
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app, "main", lambda *_, rng=rng, patch=patch, **__: outside(rng, patch))
            code = main(["show"])
        found = capsys.readouterr()
        if code == 0:  # what was answered is right
            assert outside is reads_an_answer
            continue
        law(found.out + found.err, code)
    assert CANARY not in caplog.text


URLS = (
    f"amqp://user:{CANARY}@127.0.0.1:1/v", f"amqp://:{CANARY}@127.0.0.1:1", f"https://user:{CANARY}/x@y@h", f"rabbitmq-stream://u:%40{CANARY}@h",
    f"amqp://user:{CANARY}{'x' * 60}@h",
)  # fmt: skip


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "arguments",
    [
        "URL", "completion URL", "completion bash URL", "show URL", "compare URL", "compare q=1 --add URL", "route URL k", "plan URL", "plan a.toml --allow URL",
        "check URL --offline", "check --ring URL", "show --wait URL", "show --ulr=URL", "record URL", "ui --port URL",
    ],
)  # fmt: skip
def test_a_url_in_the_place_of_another_argument_is_shown_without_its_password(
    url: str, arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert main([word.replace("URL", url) for word in arguments.split()]) == 2
    found = capsys.readouterr()
    assert CANARY not in found.out + found.err


@pytest.mark.parametrize("url", URLS)
def test_no_error_of_a_function_shows_the_password_of_a_url_in_the_place_of_another_argument(
    url: str,
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: ConsumerGroup("amqp://h", url),
        lambda: StreamGroup("rabbitmq-stream://h", streams=url, name="g"),
        lambda: HashRing.from_bindings([("q", 1)]).unbind(url),
        lambda: Release(url),
    ]
    for call in calls:
        with pytest.raises(InputError) as refusal:
            call()
        assert "***@" in str(refusal.value)
        assert CANARY not in f"{refusal.value!r}"


VARIABLES = ("AMQP_URL", "RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_TOKEN_COMMAND", "RABBIT_CHX_RING_VIA")


@pytest.mark.timeout(120)
def test_a_secret_in_a_variable_that_is_wrong_is_in_no_output(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for seed in range(CASES):
        rng = random.Random(seed)  # noqa: S311
        text = noise(rng).replace("\0", "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AMQP_URL", "amqp://127.0.0.1:1")
            patch.setenv("RABBIT_CHX_MANAGEMENT_URL", "http://127.0.0.1:1")
            name = rng.choice(VARIABLES)
            forms = [
                text,
                f"amqp://user:{text}@127.0.0.1:1",
                f"http://user:{text}@127.0.0.1:1",
                f"amqp:/{text}",
                f"{text}://h",
                f"amqp://..{text}.",
                f"http://127.0.0.1:1/ü{text}",
            ]
            patch.setenv(name, rng.choice(forms))
            arguments = rng.choice([["show", "x"], ["show"], ["export", "--all"], ["record", "x"]])
            code = main(rng.choice([arguments, ["--debug", *arguments]]))
        found = capsys.readouterr()
        assert CANARY not in found.out + found.err, (name, found.err)
        assert code in {2, 69, 70, 77}
        assert "this is a bug" not in found.err
    assert CANARY not in caplog.text


def test_an_unexpected_error_is_one_sentence_with_its_place_and_debug_shows_its_traceback_without_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError(CANARY) from OSError(5, CANARY, CANARY)

    circular = ValueError(CANARY)
    circular.__cause__ = circular
    hidden = (
        circular,
        OSError(CANARY),
        OSError(CANARY, CANARY),
        OSError(1 << 40, CANARY),
        KeyError(CANARY),
        SystemExit(CANARY),
    )
    for error in hidden:
        monkeypatch.setattr("rabbit_chx.cli.compare.compare.callback", Mock(side_effect=error))
        assert main(["compare", "q=1"]) == 70
        said = capsys.readouterr().err
        assert re.fullmatch(
            rf"rabbit-chx: this is a bug .*{type(error).__name__} in rabbit_chx[\w.]*:\d+; .*\n", said
        )
        assert CANARY not in said
        assert main(["--debug", "compare", "q=1"]) == 70
        assert CANARY not in capsys.readouterr().err
    monkeypatch.setattr("rabbit_chx.cli.compare.compare.callback", fail)
    for arguments, debug in ((["--debug", "compare"], ""), (["compare", "--debug"], ""), (["compare"], "1")):
        monkeypatch.setenv("RABBIT_CHX_DEBUG", debug)
        assert main([*arguments, "q=1"]) == 70
        said = capsys.readouterr().err
        assert "OSError: ***" in said
        assert "ValueError: ***" in said
        assert 'app.py", line' in said
        assert CANARY not in said
