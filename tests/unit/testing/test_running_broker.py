"""The value, the bounded commands and waits, and the import; no broker needed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from scripted_api import ScriptedApi, page

from rabbit_chx.errors import BrokerTimeoutError, InputError, UnreachableError
from rabbit_chx.testing import NoBrokerError, RunningBroker, running_broker
from rabbit_chx.testing.pytest_plugin import in_words, shorten

SOMEBODYS = RunningBroker(
    url="amqp://me:s3cret@broker.example/%2F",
    management_url="https://me:s3cret@broker.example",
    version="4.3.6",
    ring_via=("kubectl", "exec", "rabbit-0", "--"),
    origin="a broker of somebody",
)


@pytest.mark.parametrize(("method", "verb"), [("stop", "stop"), ("log", "read the log of")])
def test_a_broker_that_is_not_ours_is_left_alone(method: str, verb: str) -> None:
    assert not SOMEBODYS.owned
    with pytest.raises(InputError, match=f"cannot {verb} the broker at amqp://me:\\*\\*\\*@broker.example"):
        getattr(SOMEBODYS, method)()
    with pytest.raises(InputError, match="did not start it"):
        SOMEBODYS.run("rabbitmqctl", "status")


def test_repr_has_no_password() -> None:
    assert "s3cret" not in repr(SOMEBODYS)
    assert "url='amqp://me:***@broker.example/%2F', management_url='https://me:***@" in repr(SOMEBODYS)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://me:s3cret@broker.example/%2F", "rabbitmq-stream://me:s3cret@broker.example:5552/%2F"),
        ("amqp://me:15@[::1]:5672/v?heartbeat=5", "rabbitmq-stream://me:15@[::1]:5552/v"),
        ("amqps://h:5671", "rabbitmq-stream://h:5552"),
    ],
)
def test_the_url_of_streams_is_made_of_that_of_amqp(url: str, expected: str) -> None:
    assert replace(SOMEBODYS, url=url).stream_url == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://host:5672/%2F", "amqp://host:5672/%2F"),
        ("amqp://user@host", "amqp://user@host"),
        ("amqp://user:p@ss:w/ord@host/v", "amqp://user:***@host/v"),
        ("amqp://user:a://b@host", "amqp://user:***@host"),
        ("user:password@host", "user:***@host"),
        ("user:pass://word@host", "user:***@host"),
        ("host", "host"),
    ],
)
def test_masked(url: str, expected: str) -> None:
    assert running_broker.mask(url) == expected


def test_a_program_that_does_not_end_is_killed_with_its_children() -> None:
    # The inner sleep keeps stdout open: if it lived on, reading to the end would last until it is over.
    with pytest.raises(BrokerTimeoutError, match=r"sh -c did not end within 0.2 s"):
        running_broker.run_bounded(("sh", "-c", "sleep 100; true"), timeout_s=0.2)


def test_a_program_that_is_not_there_is_named_without_its_arguments() -> None:
    with pytest.raises(UnreachableError, match="cannot run no-such-program x") as caught:
        running_broker.run_bounded(("no-such-program", "x", "s3cret"), timeout_s=1)
    assert "s3cret" not in str(caught.value)


def test_the_last_lines_are_those_that_are_not_empty() -> None:
    assert running_broker.last_lines("a\n\nb \nc\n", 2) == "b\nc"
    assert running_broker.last_lines("\n") == "no output"


def test_free_ports_are_different() -> None:
    assert len(set(running_broker.free_ports(50))) == 50


@pytest.mark.parametrize(
    ("running", "timeout_s", "says"),
    [
        (False, 60, "the server ended while it started.*the log"),
        (True, 0.1, "does not serve after 0.1 s.*the log"),
    ],
)
def test_waiting_is_bounded_by_the_time_and_the_end_of_the_server(
    *, running: bool, timeout_s: float, says: str
) -> None:
    amqp_port, management_port = running_broker.free_ports(2)
    url, management_url = running_broker.guest_urls(amqp_port, management_port)
    with pytest.raises(NoBrokerError, match=f"(?s){says}") as caught:
        running_broker.wait_until_serving(
            url, management_url, timeout_s=timeout_s, running=lambda: running, log=lambda: "the log", tools=()
        )
    assert "guest:guest" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "ran", "code", "is_complete"),
    [
        ("200 OK", "", 1, True),
        ("404 Not Found", "rabbitmqctl await_startup\n", 0, True),
        ("403 Forbidden", "rabbitmqctl await_startup\n", 0, True),
        ("503 Service Unavailable", "", 0, False),
        ("404 Not Found", "rabbitmqctl await_startup\n", 1, False),
    ],
)
def test_the_tool_is_run_if_the_api_does_not_tell_whether_the_startup_is_complete(
    *, status: str, ran: str, code: int, is_complete: bool, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    told.touch()
    refused = pytest.raises(NoBrokerError, match="its startup is not complete")
    with ScriptedApi() as api, nullcontext() if is_complete else refused:
        api.scripts["health"] = page(status, {"error": "Object Not Found", "reason": "Not Found"})
        running_broker.await_startup(api.url, ("sh", "-c", f'echo "$@" >"$0"; exit {code}', str(told)), 5)
    assert api.requests[0][0] == "GET /api/health/checks/is-in-service HTTP/1.1"
    assert told.read_text() == ran


@pytest.mark.parametrize("url", ["s3cret", "ftp://u:s3cret@host", "http://u:s3cret@host:port"])
def test_a_malformed_management_url_is_an_input_error(url: str) -> None:
    with pytest.raises(InputError, match="management URL: "):
        running_broker.check_management(url)


# ---- the warnings and errors of a broker's log since a time


#: Lines with colours, and messages that have further lines without a time.
LOG = """\
2026-11-26 17:41:57.900000+00:00 [error] <0.1.0> before the test
2026-11-26 17:41:59.044584+00:00 [info] <0.2.0> accepting AMQP connection
\x1b[38;5;160m2026-11-26 17:41:59.044584+00:00 [error] <0.3.0> Channel error on connection\x1b[0m
2026-11-26 17:41:59.100000+00:00 [error] <0.6625.1> Channel error:
operation exchange.declare caused a channel exception
2026-11-26 17:41:59.200000+00:00 [info] <0.6.1> closing
of the connection
2026-11-26 18:42:00.000000+01:00 [warning] <0.4.0> closed abruptly
"""


def test_problems_are_the_warnings_and_errors_since_a_time_with_the_lines_that_continue_them() -> None:
    since = datetime(2026, 11, 26, 17, 41, 59, 500_000, tzinfo=UTC)
    assert running_broker.problems_in(LOG, since) == [
        "2026-11-26 17:41:59.044584+00:00 [error] <0.3.0> Channel error on connection",
        "2026-11-26 17:41:59.100000+00:00 [error] <0.6625.1> Channel error:",
        "operation exchange.declare caused a channel exception",
        "2026-11-26 18:42:00.000000+01:00 [warning] <0.4.0> closed abruptly",
    ]


def test_the_last_lines_are_shown() -> None:
    lines = [f"line {number}" for number in range(1, 31)]
    assert shorten(lines) == ["11 earlier lines", *lines[11:]]
    assert shorten(lines[:20]) == lines[:20]


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        (">=3.13", "3.13 or newer"),
        ("<4.0", "before 4.0"),
        (">=3.9,<4.3", "3.9 or newer and before 4.3"),
        ("~=4.0", "~=4.0"),
        ("==4.3.6", "4.3.6"),
    ],
)
def test_a_range_of_releases_is_shown_in_words(releases: str, words: str) -> None:
    assert in_words(releases) == words
