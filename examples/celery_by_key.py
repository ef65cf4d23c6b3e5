"""Celery tasks in the order of their keys: docs/publish/frameworks.md has the commands that start the workers.

AMQP_URL=... python examples/celery_by_key.py calls 200 tasks and prints the queue of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from celery import Celery, Task
from celery.utils.log import get_task_logger
from kombu import Queue

from rabbit_chx import Topology

RING = Topology.from_file(Path(__file__).with_name("frameworks.toml")).ring("orders")
logger = get_task_logger(__name__)


class OrderedTask(Task):  # type: ignore[misc]
    """A task that refuses retries: Celery would publish a retry behind later tasks of its key."""

    def retry(self, *_: object, **__: object) -> NoReturn:
        """Fail, also for `autoretry_for`."""
        raise NotImplementedError(f"{self.name}: a retry breaks the order: repeat the work inside the task")


def route_by_key(_name: str, args: Sequence[str], *_: object, **__: object) -> dict[str, str]:
    """Return the exchange and the routing key of a task: its first argument is the key."""
    return {"exchange": "orders", "exchange_type": "x-consistent-hash", "routing_key": args[0]}


app = Celery("orders", broker=os.environ.get("AMQP_URL", "amqp://localhost"), task_cls=OrderedTask)
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    task_reject_on_worker_lost=True,  # a task whose process was killed returns to its queue
    # The topology file declares the queues: Celery would bind them in the order in which workers start.
    # It sees the type here, since it otherwise sets a global prefetch count, which quorum queues refuse.
    task_queues=[
        Queue(str(queue), no_declare=True, queue_arguments={"x-queue-type": "quorum"})
        for queue in RING.destinations
    ],
    task_routes=[route_by_key],
    worker_cancel_long_running_tasks_on_connection_loss=True,  # the broker delivers them again
    worker_concurrency=1,
    worker_prefetch_multiplier=1,
)


@app.task(name="orders.handle", bind=True)  # type: ignore[untyped-decorator]
def handle(self: Task, key: str, number: int) -> None:
    """Handle an order: log the queue, the key and the number."""
    logger.info("%s %s %d", self.request.hostname.partition("@")[0], key, number)


if __name__ == "__main__":
    for order in range(200):
        customer = f"customer-{order % 20}"
        handle.delay(customer, order)
        print(RING.destination_for(customer), customer, order)
