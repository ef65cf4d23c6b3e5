"""The web service of docs/publish/web-services.md under load: each request that got 202 is in a queue, whatever happens to the broker."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pika
import pytest
from bounded import until
from broker_faults import faults_of
from taken import taken
from uvicorn_process import served

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.extended, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLIENTS = 16
QUEUES = {"orders.1": 1, "orders.2": 1}


def answer(port: int, method: str, path: str, body: bytes | None = None) -> int:
    """Send a request, and return the status of its answer; 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
        return connection.getresponse().status
    return 0


def wait_for_health(port: int, status: int) -> None:
    until(lambda: answer(port, "GET", "/health") == status, f"the probe answers {status}", every_s=0.1)


def wait_for_accepted(answers: dict[bytes, int], count: int) -> None:
    """Wait until so many more requests are accepted."""

    def accepted() -> int:
        return list(answers.values()).count(202)

    wanted = accepted() + count
    until(lambda: accepted() >= wanted, f"{wanted} requests are accepted")


def send_until(stopped: threading.Event, port: int, way: str, number: int, answers: dict[bytes, int]) -> None:
    """Send requests one after the other."""
    for count in itertools.count():
        if stopped.is_set():
            return
        body = f"{number}-{count}".encode()
        answers[body] = answer(port, "POST", f"/{way}/orders/customer-{count % 50}", body)
        if answers[body] == 503:
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_each_accepted_request_is_in_a_queue_though_the_broker_is_killed(
    vhost: RunningBroker, way: str
) -> None:
    with Broker(vhost.url, vhost.management_url) as control:
        control.declare("orders", QUEUES, queue_arguments={"x-queue-type": "quorum"})
    # 4.3.6 starts a quorum queue empty if it is killed seconds after the queue was declared ("name_not_registered" in its log).
    faults_of(vhost).restart()
    stopped, answers = threading.Event(), dict[bytes, int]()
    with served("web_service:app", EXAMPLES, vhost.url) as port, ThreadPoolExecutor(CLIENTS) as clients:
        wait_for_health(port, 200)
        key = "k" * 300  # longer than AMQP carries
        assert answer(port, "POST", f"/{way}/orders/{key}", b"{}") == 422
        sending = [
            clients.submit(send_until, stopped, port, way, number, answers) for number in range(CLIENTS)
        ]
        try:
            wait_for_accepted(answers, 50)
            faults_of(vhost).kill()
            wait_for_health(port, 503)
            time.sleep(8)  # longer than the service waits for a connection
            faults_of(vhost).start()
            wait_for_health(port, 200)
            wait_for_accepted(answers, 101)
        finally:
            stopped.set()
        for client in sending:
            client.result(60)
    counts = Counter(answers.values())
    assert counts[202] > 100, counts
    assert counts[503] > 0, counts
    assert counts.keys() <= {202, 503}, counts
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        found = {body for queue in QUEUES for _, _, body in taken(connection.channel(), queue)}
    assert [body for body, status in answers.items() if status == 202 and body not in found] == []
    assert found <= answers.keys()
