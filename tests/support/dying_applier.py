"""Applies plans in processes of their own, which kill themselves. A program: each line of its input is a task as JSON.

It forks for each task, since the start of Python takes longer than an application. The child kills itself by SIGKILL before
its operation of that number, so at any point: within a pipeline, and between the deletion of a queue and its declaration. Or it dies at a
`PlacedDeath`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from changed_site import ChangedSite
from few_seeds import few_seeds
from placed_death import PlacedDeath, die_at

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_connection
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.management import Management
from rabbit_chx.topology import plan

_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class DyingApplier:
    """The program.

    Attributes:
        process: the process.
        site: where it applies.
        reads: True: it reads the rings; False: it knows them by their records.
        may_fail: True: an application that the broker or the plan refuses is one that was not killed.
    """

    process: subprocess.Popen[str]
    site: ChangedSite
    reads: bool = True
    may_fail: bool = False

    def killed(self, wanted: Topology, before: int) -> bool:
        """Apply until an operation, and return whether that was reached, so that the process was killed.

        Args:
            wanted: what is wanted.
            before: the number of the operation, the lock being 0.
        """
        return self._told(wanted, {"before": before}) is not None

    def died(self, wanted: Topology, death: PlacedDeath, hand_over: str = "parked") -> int:
        """Apply until a step, which must be reached; return how many parked messages are there twice then.

        Args:
            wanted: what is wanted.
            death: the step.
            hand_over: how slots change hands.
        """
        told = self._told(wanted, {"death": asdict(death), "hand_over": hand_over})
        assert told is not None, f"it did not come to {death}"
        return told

    def _told(self, wanted: Topology, how: dict[str, Any]) -> int | None:
        """Return what the process that died has told; None where it did not die."""
        broker = self.site.broker
        task = {
            "url": broker.url,
            "management_url": broker.management_url,
            "source": self.site.source if self.reads else None,
            "wanted": wanted.to_toml(),
            **how,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        status, told = json.loads(self.process.stdout.readline())
        assert status in (0, signal.SIGKILL) or self.may_fail, (
            "the application failed; its error is on stderr"
        )
        return int(told) if status == signal.SIGKILL else None


@contextmanager
def dying_applier(site: ChangedSite, *, reads: bool = True) -> Iterator[DyingApplier]:
    """Start the program; it ends with the block.

    Args:
        site: where it applies.
        reads: whether it reads the rings.
    """
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield DyingApplier(process, site, reads)
        finally:
            process.kill()


def _die_before(number: int) -> None:
    """Count what changes the broker, and die."""
    left = number

    def counted() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    pika_call, request = pika_connection._call, Management.request

    def by_pika(channel: Any, operation: Operation) -> None:
        counted()
        pika_call(channel, operation)

    def by_http(self: Management, method: str, *path: str, **options: Any) -> Any:
        if method != "GET":
            counted()
        return request(self, method, *path, **options)

    pika_connection._call = by_pika
    Management.request = by_http  # type: ignore[method-assign]


def _apply(task: dict[str, Any], told: int) -> None:
    wanted = Topology.from_toml(task["wanted"])
    arguments = task["url"], task["management_url"], task["source"]
    allowed = {"allow_moved": 1.0, "allow_delete": True, "hand_over": task.get("hand_over", "parked")}
    if "death" in task:
        die_at(PlacedDeath(**task["death"]), told)
    else:
        _die_before(task["before"])
    with Broker(*arguments) as broker:
        broker.apply(plan(wanted, broker.topology()), **allowed)


def _main() -> None:
    for line in sys.stdin:
        listened, told = os.pipe()
        pid = os.fork()
        if not pid:
            signal.alarm(_TIMEOUT_S)
            _apply(json.loads(line), told)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        os.close(told)
        with os.fdopen(listened) as said:
            print(json.dumps([status, said.read() or 0]), flush=True)  # noqa: T201  # for the test that started it


if __name__ == "__main__":
    with few_seeds():  # nobody looks at the figures here
        _main()
