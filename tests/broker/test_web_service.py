"""The web service of docs/web-services.md under load: each request that got 202 is in a queue, whatever happens to the broker."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from bounded import until
from uvicorn_process import served

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.extended, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLIENTS = 16
QUEUES = {"orders.1": 1, "orders.2": 1}


def request(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> int:
    """Send a request, and return the status of its answer."""
    connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
    response = connection.getresponse()
    response.read()
    return response.status


def wait_for_health(port: int, status: int) -> None:
    """Wait until the probe gets this answer."""
    seen: int | None = None
    for _ in range(600):
        with suppress(OSError, http.client.HTTPException):
            # Closed after an error, too: otherwise a warning of it ends another test.
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                seen = request(connection, "GET", "/health")
            if seen == status:
                return
        time.sleep(0.1)
    pytest.fail(f"the probe answers {seen}, and not {status}")


def wait_for_accepted(answers: list[dict[bytes, int]], count: int) -> None:
    """Wait until so many more requests are accepted."""

    def accepted() -> int:
        return sum(status == 202 for part in answers for status in list(part.values()))

    wanted = accepted() + count
    until(lambda: accepted() >= wanted, f"{wanted} requests are accepted")


def send_until(stopped: threading.Event, port: int, way: str, number: int, answers: dict[bytes, int]) -> None:
    """Send requests one after the other; 0 is the answer of a request that got none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    count = 0
    while not stopped.is_set():
        body = f"{number}-{count}".encode()
        count += 1
        answers[body] = 0
        try:
            answers[body] = request(connection, "POST", f"/{way}/orders/customer-{count % 50}", body)
        except (OSError, http.client.HTTPException):
            connection.close()
        if answers[body] == 503:
            time.sleep(0.05)
    connection.close()


def taken(broker: RunningBroker) -> Counter[bytes]:
    """Take all messages of the queues."""
    found: Counter[bytes] = Counter()
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            got: Any = channel.basic_get(queue, auto_ack=True)
            while got[0] is not None:
                found[got[2]] += 1
                got = channel.basic_get(queue, auto_ack=True)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_each_accepted_request_is_in_a_queue_though_the_broker_is_killed(
    vhost: RunningBroker, way: str
) -> None:
    with Broker(vhost.url, vhost.management_url) as control:
        control.declare("orders", QUEUES, queue_arguments={"x-queue-type": "quorum"})
    # 4.3.6 starts a quorum queue empty if it is killed seconds after the queue was declared ("name_not_registered" in its log).
    vhost.restart()
    stopped = threading.Event()
    answers: list[dict[bytes, int]] = [{} for _ in range(CLIENTS)]
    with served("web_service:app", EXAMPLES, vhost.url) as port:
        wait_for_health(port, 200)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            key = "k" * 300  # longer than AMQP carries
            assert request(connection, "POST", f"/{way}/orders/{key}", b"{}") == 422
        clients = [
            threading.Thread(target=send_until, args=(stopped, port, way, number, answers[number]))
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        wait_for_accepted(answers, 50)
        vhost.kill()
        wait_for_health(port, 503)
        time.sleep(8)  # longer than the service waits for a connection
        vhost.start()
        wait_for_health(port, 200)
        wait_for_accepted(answers, 101)
        stopped.set()
        for client in clients:
            client.join(60)
    given = {body: status for part in answers for body, status in part.items()}
    counts = Counter(given.values())
    assert counts[202] > 100, counts
    assert counts[503] > 0, counts
    assert counts.keys() <= {202, 503}, counts
    found = taken(vhost)
    assert [body for body, status in given.items() if status == 202 and body not in found] == []
    assert found.keys() <= given.keys()
