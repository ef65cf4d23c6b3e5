"""docs/publish/web-services.md: its service runs as written, and its answers are those of the page."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from blocks import console_examples, page, python_blocks, run_command
from uvicorn_process import served

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker
PAGE = "docs/publish/web-services.md"
(SERVE, _), (CURL, ANSWER), (METRICS, COUNT) = console_examples(page(PAGE))


@contextmanager
def service(url: str, folder: Path) -> Iterator[str]:
    """The service of the page, as the command of the page with its host and port."""
    block, *_ = python_blocks(PAGE)
    (folder / "service.py").write_text(block)
    (application,) = re.findall(r"^uvicorn (\S+) &$", SERVE)
    with served(application, folder, url) as port:
        yield CURL.replace("localhost:8000", f"127.0.0.1:{port}")


def answer(command: str, folder: Path) -> tuple[str, str]:
    """Return the body of the answer, and its status."""
    ran = run_command(rf"{command} --silent --max-time 60 --write-out '\n%{{http_code}}'", 90, folder)
    body, code = ran.stdout.decode().rsplit("\n", 1)
    return body, code


def test_a_confirmed_message_is_in_a_queue_and_one_that_no_queue_takes_gets_422(
    vhost: RunningBroker, tmp_path: Path
) -> None:
    with Broker(vhost.url, vhost.management_url) as broker:
        broker.declare("orders", {"orders.1": 1})
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        with service(vhost.url, tmp_path) as command:
            assert answer(command, tmp_path) == (ANSWER.strip(), "202")
            port = re.search(r"127.0.0.1:\d+", command)
            assert port
            shown = run_command(METRICS.replace("localhost:8000", port[0]), 60, tmp_path)
            assert shown.stdout.decode() == COUNT
            got: Any = channel.basic_get("orders.1", auto_ack=True)
            assert (got[0].routing_key, got[2]) == ("customer-42", b"{}")
            channel.queue_delete("orders.1")
            assert answer(command, tmp_path)[1] == "422"


def test_an_unreachable_broker_gets_503(tmp_path: Path) -> None:
    with service("amqp://127.0.0.1:1", tmp_path) as command:
        body, code = answer(command.replace("--retry 9", "--retry 1"), tmp_path)  # also after 503
    assert code == "503"
    assert "try again" in body
    assert "127.0.0.1" not in body, "host, user and vhost of the broker are for the log"


def test_a_worker_of_gunicorn_publishes_and_closes(
    vhost: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hooks are called as gunicorn does, in this process."""
    _, hooks, shop = python_blocks(PAGE)
    (tmp_path / "shop.py").write_text(shop)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # a module of these tests has that name, too
    monkeypatch.setenv("AMQP_URL", vhost.url)
    with Broker(vhost.url, vhost.management_url) as broker:
        broker.declare("orders", {"orders.1": 1})
    names: dict[str, Any] = {}
    exec(compile(hooks, PAGE, "exec"), names)  # noqa: S102  # that is what is tested
    names["post_fork"](None, None)
    module = importlib.import_module("shop")
    module.order("customer-42", b"{}")
    names["worker_exit"](None, None)
    assert module.publisher.stats().confirmed == 1
