"""A management API that answers wrongly, late, without end, or elsewhere: one clear error each time, and no password."""

from __future__ import annotations

import base64
import itertools
import re
import socket
import ssl
import threading
import tracemalloc
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import trustme
from loopback import dead_port
from scripted_api import Script, ScriptedApi, page
from stored_cases import stored_cases

from rabbit_chx import errors
from rabbit_chx.broker import management as module
from rabbit_chx.broker.management import Management

LOGIN = "u:c4nary"
CODED = base64.b64encode(LOGIN.encode()).decode()


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


def asked(api: ScriptedApi, script: Script, **options: float) -> Any:
    api.scripts[""] = script
    return Management(f"http://{LOGIN}@{api.address}", **options).request("GET", "overview")


def error(api: ScriptedApi, script: Script, **options: float) -> errors.RabbitChxError:
    with pytest.raises(errors.RabbitChxError) as caught:
        asked(api, script, **options)
    shown = f"{caught.value!s} {caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert "c4nary" not in shown
    assert CODED not in shown
    assert f"http://u:***@{api.address}" in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_right_answer_is_its_json_or_none_and_each_segment_of_a_path_is_quoted(api: ScriptedApi) -> None:
    assert asked(api, page("200 OK", {"a": [1]})) == {"a": [1]}
    management = Management(api.url)
    management.request("GET", "queues", "/", "a/b c")
    api.scripts[""] = page("204 No Content")
    assert management.request("PUT", "vhosts", "/") is None
    management.put("policies", "/", "p", body={"pattern": "^q"})
    management.delete("policies", "/", "p")
    assert [first.removesuffix(" HTTP/1.1") for first, _ in api.requests[1:]] == [
        "GET /api/queues/%2F/a%2Fb%20c",
        "PUT /api/vhosts/%2F",
        "PUT /api/policies/%2F/p",
        "DELETE /api/policies/%2F/p",
    ]


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_no_path_can_have_is_named_before_another_object_answers(
    api: ScriptedApi, name: str
) -> None:
    with pytest.raises(errors.InputError, match=f"cannot be asked about '{re.escape(name)}'"):
        Management(api.url).request("GET", "exchanges", "/", name)
    assert not api.requests


STORED = stored_cases(__file__, "answers.txt", r"^(\d+ [\w ]+) (b?['\"{[\d].*)\n-> (.*)")


@pytest.mark.parametrize(("status", "content", "said"), STORED)
def test_an_answer_is_an_error_of_its_status_with_a_remedy_as_stored(
    api: ScriptedApi, status: str, content: str, said: str
) -> None:
    """Reasons of a missing tag are those of 4.3.6."""
    refused = error(api, page(status, literal_eval(content)))
    assert f"{type(refused).__name__}: {refused}".replace(api.address, "host") == said
    assert refused.reply_code == (None if status == "200 OK" else int(status[:3]))


@pytest.mark.parametrize(
    ("method", "statuses", "kind"),
    [
        ("GET", ["500 Internal Server Error"] * 2, errors.BrokerRefusedError),
        ("GET", ["500 Internal Server Error", "404 Object Not Found"], errors.NotFoundError),
        ("GET", ["503 Service Unavailable"], errors.BrokerRefusedError),
        ("PUT", ["500 Internal Server Error"], errors.BrokerRefusedError),
    ],
)
def test_a_request_to_read_that_the_plugin_fails_to_answer_is_sent_twice(
    api: ScriptedApi, method: str, statuses: list[str], kind: type[errors.RabbitChxError]
) -> None:
    """It fails where a queue goes while its statistics are collected: 2 of 10,691 requests on 4.3.6."""
    answers = [page(status)() for status in statuses]
    api.scripts[""] = lambda: answers.pop(0)
    with pytest.raises(kind):
        Management(api.url).request(method, "queues", "/", "q")
    assert len(api.requests) == len(statuses)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_redirection_is_not_followed(api: ScriptedApi, status: int, method: str) -> None:
    with ScriptedApi() as elsewhere:
        elsewhere.scripts[""] = page("200 OK", {})
        api.scripts[""] = page(
            f"{status} Moved", headers=[f"Location: http://{elsewhere.address}/api/overview"]
        )
        with pytest.raises(
            errors.BrokerRefusedError, match=f"{status}: this is a redirection, which is not followed"
        ):
            Management(api.url).request(method, "overview")
        assert elsewhere.requests == []
    assert len(api.requests) == 1


NOT_JSON: dict[str, Script] = {
    "ten megabytes of html": page("200 OK", b"<html>" + b"<p>x</p>" * 1_250_000),
    "deep": page("200 OK", b"[" * 200_000),
    "cut off in its header": lambda: [b"HTTP/1.1 200 OK\r\nContent-Le"],  # http.client takes it for the end
}


@pytest.mark.parametrize("script", NOT_JSON.values(), ids=NOT_JSON)
def test_an_answer_that_is_not_json_is_refused(api: ScriptedApi, script: Script) -> None:
    refused = error(api, script)
    assert type(refused) is errors.BrokerRefusedError
    assert "is not JSON, but begins" in str(refused)
    assert len(str(refused)) < 400


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CUT: dict[str, Script] = {
    "at once": list,
    "in the status": lambda: [b"HTTP/1."],
    "no http": lambda: [b"AMQP\0\0\x09\x01"],
    "in the body": page("200 OK", {"a": 1}, length=100),
    "before the body": page("200 OK", length=100),
    "between chunks": lambda: [CHUNKED, b'5\r\n{"a":\r\n'],
    "in a chunk": lambda: [CHUNKED, b"64\r\n{}"],
    "a bad chunk": lambda: [CHUNKED, b"zz\r\n{}"],
}


@pytest.mark.parametrize("script", CUT.values(), ids=CUT)
def test_what_is_cut_off(api: ScriptedApi, script: Script) -> None:
    lost = error(api, script)
    assert isinstance(lost, errors.UnreachableError)
    assert "no answer from the HTTP API to GET /api/overview" in str(lost)


def test_without_a_listener_the_remedy_names_port_and_plugin() -> None:
    says = r"refused.*check host and port, and that the management plugin is enabled"
    with dead_port() as port, pytest.raises(errors.UnreachableError, match=says):
        Management(f"http://127.0.0.1:{port}").request("GET", "overview")


def test_a_port_without_tls_is_named_as_one() -> None:
    """Such a server answers the beginning of TLS with a page 400."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        with pytest.raises(errors.UnreachableError, match="without TLS: write http:// in place of https://"):
            Management(f"https://127.0.0.1:{server.server_port}").request("GET", "overview")
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
SLOW = {
    "silence": b"",
    "the status, slowly": b"HTTP/1.1 200 OK" * 1000,
    "headers, slowly": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000,
    "the body, slowly": HEAD + b" " * 100_000,
}


@pytest.mark.parametrize("content", SLOW.values(), ids=SLOW)
def test_a_slow_peer_is_given_up(api: ScriptedApi, content: bytes) -> None:
    late = error(api, lambda: api.drip(content, 0.02), timeout_s=0.3)
    assert isinstance(late, errors.BrokerTimeoutError)
    assert re.search(r"is not complete after 1.8 s: look at the load of the broker|timed out", str(late))


@contextmanager
def tls_api(answer: Callable[[ssl.SSLSocket], None], *names: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server that answers one connection, and the names that it is asked for."""
    authority, asked_for = trustme.CA(), list[str]()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)

    def serve(listener: socket.socket) -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as client:
            client.recv(10_000)
            answer(client)

    with socket.create_server(("127.0.0.1", 0)) as listener, authority.cert_pem.tempfile() as file:
        answering = threading.Thread(target=serve, args=(listener,), daemon=True)
        answering.start()
        yield f"https://{names[0]}:{listener.getsockname()[1]}?cacertfile={file}", asked_for
        answering.join(60)


def test_a_slow_peer_over_tls_is_given_up() -> None:
    over = threading.Event()

    def drip(client: ssl.SSLSocket) -> None:
        client.sendall(HEAD)
        with suppress(OSError):
            while not over.wait(0.02):
                client.sendall(b" ")

    given_up = pytest.raises(errors.BrokerTimeoutError, match=r"is not complete after|timed out")
    with tls_api(drip, "127.0.0.1") as (url, _):
        with given_up:
            Management(url, timeout_s=0.3).request("GET", "overview")
        over.set()


@pytest.mark.parametrize("name", ["broker.example", None])
def test_the_name_that_is_given_is_asked_for(name: str | None) -> None:
    def answer(client: ssl.SSLSocket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with tls_api(answer, "localhost", "broker.example") as (url, names):
        named = url if name is None else f"{url}&server_name_indication={name}"
        assert Management(named).request("GET", "overview") == {}
    assert names == [name or "localhost"]


@pytest.mark.parametrize("letter", ["q", "\U0001f407"])
def test_the_objects_of_an_answer_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    """Objects need up to twenty times the bytes of an answer."""
    most = 15_000_000
    queue = '{"name":"%s","arguments":{},"members":["a@b",{}]}'
    content = f"[{','.join(queue % f'{letter}{n}' for n in range(40_000))}]".encode()
    monkeypatch.setattr(module, "_MOST_MEMORY", most)
    tracemalloc.start()
    try:
        with pytest.raises(module._TooLargeError):
            module._parse(content)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        monkeypatch.setattr(module, "_MOST_MEMORY", 1_000_000_000)
        parsed = module._parse(content)
        without_limit = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(parsed) == 40_000
    assert peak < 1.1 * most < without_limit


def endless() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n\r\n["
    yield from itertools.repeat(b'"x",' * 10_000)


MANY = page("200 OK", [{"name": f"q{n}"} for n in range(20_000)])
TOO_MANY = r"the answer to GET /api/overview has .*its objects need more than 2 MB of memory: ask for less, such as one exchange"


@pytest.mark.parametrize(
    ("limit", "value", "script", "words"),
    [
        ("_MOST_MEMORY", 2_000_000, MANY, TOO_MANY),
        ("_LARGEST", 1_000_000, endless, "is longer than 1,000,000 bytes"),
    ],
    ids=["of many objects", "without end"],
)
def test_an_answer_that_is_too_large_is_named(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, *, limit: str, value: int, script: Script, words: str
) -> None:
    monkeypatch.setattr(module, limit, value)
    refused = error(api, script)
    assert type(refused) is errors.BrokerRefusedError
    assert re.search(words, str(refused))


@pytest.mark.parametrize(
    ("read", "says", "right", "wrong"),
    [
        (
            lambda api: api.get_list("queues", "/", fields={"name": str}),
            "GET queues// is not a list of objects with name",
            [[], [{"name": "q", "more": 1}]],
            [[{"name": "q"}, {}], [{"name": None}], ["q"], {"name": "q"}, None, {"items": [{"name": "q"}]}],
        ),
        (
            lambda api: api.get("overview", fields={"rabbitmq_version": str}),
            "GET overview is not an object with rabbitmq_version",
            [{"rabbitmq_version": "4.3.6"}],
            [{"rabbitmq_version": 4}, {}, [], "4.3.6", None],
        ),
    ],
)
def test_an_answer_of_another_shape_is_refused(
    api: ScriptedApi, read: Callable[[Management], object], says: str, right: list[Any], wrong: list[Any]
) -> None:
    refused = pytest.raises(
        errors.BrokerRefusedError, match=f"the answer to {says}: .*, not .*: check that the URL"
    )
    for answer in right + wrong:
        api.scripts[""] = page("200 OK", answer)
        management = Management(api.url)
        assert management.get("overview") == answer
        with refused if answer in wrong else nullcontext():
            assert read(management) == answer
