"""The plugin on a real broker, as a user meets it, and the example of a user's own parity test."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from found_broker import need

from rabbit_chx.testing import RunningBroker

if TYPE_CHECKING:
    RunPytest = Callable[..., str]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]

NEEDS = """
import pytest

@pytest.mark.chx_broker(">=3.8")
def test_that_runs(chx_vhost):
    assert "/rabbit_chx-" in chx_vhost.url

@pytest.mark.chx_broker("<3.8")
def test_of_another_release(chx_broker): pass

@pytest.mark.chx_broker(restartable=True)
def test_that_restarts(chx_broker): chx_broker.restart()
"""


@pytest.fixture
def named(broker: RunningBroker) -> dict[str, str]:
    """The session's broker, as one that a user has named."""
    assert broker.management_url is not None
    return {"RABBIT_CHX_TEST_URL": broker.url, "RABBIT_CHX_TEST_MANAGEMENT_URL": broker.management_url}


def test_requirements_that_the_named_broker_lacks_are_reported(
    run_pytest: RunPytest, broker: RunningBroker, named: dict[str, str]
) -> None:
    """Also of several workers once, and in CI only the release may be another."""
    ran_on = f"from RABBIT_CHX_TEST_URL (RabbitMQ {broker.version})"
    said = run_pytest(NEEDS, **named)
    assert "1 passed, 2 skipped" in said
    assert said.count(ran_on) >= 2  # in the header, at the end
    assert "guest:guest" not in said
    assert f"1 test needs RabbitMQ before 3.8: this one is {broker.version}" in said
    assert "NOT RUN, 1 test: needs a broker that may be restarted, not amqp://guest:***@" in said

    said = run_pytest(NEEDS + "def test_more(chx_broker): pass", "-n", "2", **named)
    assert "2 passed, 2 skipped" in said
    end = said.partition("= rabbit_chx =")[2]
    assert len(re.findall(f"^ran on .*{re.escape(ran_on)}", end, re.MULTILINE)) == end.count("ran on ") == 1
    assert end.count("NOT RUN, 1 test:") == end.count("1 test needs RabbitMQ before 3.8") == 1

    said = run_pytest(NEEDS, **named, CI="true")
    assert "1 passed, 1 skipped, 1 error" in said
    assert "in CI this must run: rabbit_chx: needs a broker that may be restarted" in said


LOGIN_FAILS = """
import pika, pytest
def test_one(chx_vhost):
    url = chx_vhost.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(url))
    assert not chx_vhost
"""


def test_a_failed_test_shows_the_warnings_and_errors_of_its_broker_of_an_image(run_pytest: RunPytest) -> None:
    need("docker")
    said = run_pytest(LOGIN_FAILS, "--chx-image", "rabbitmq:4.3-management")
    assert "1 failed" in said
    (log,) = re.findall(
        r"^- warnings and errors of container rabbitmq:4.3-management .* -\n(.*?)^=",
        said,
        re.DOTALL | re.MULTILINE,
    )
    assert "PLAIN login refused" in log
    assert "[info]" not in log


def test_without_management_there_is_no_vhost(run_pytest: RunPytest, broker: RunningBroker) -> None:
    said = run_pytest("def test_one(chx_vhost): pass", RABBIT_CHX_TEST_URL=broker.url)
    assert "1 skipped" in said
    assert "set RABBIT_CHX_TEST_MANAGEMENT_URL as well" in said


def test_the_example_holds(run_pytest: RunPytest, named: dict[str, str]) -> None:
    assert "1 passed" in run_pytest((ROOT / "examples/parity/test_orders.py").read_text(), **named)
