"""A publisher in a process of its own, which can be stopped and continued."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bounded import until
from fire_load import Run

_TIMEOUT_S = 120


def publish_in_process(url: str, exchange: str, fault: Callable[[int], None], folder: Path) -> Run:
    """Publish under a fault of the process.

    Args:
        url: the broker; no list of processes shows it.
        exchange: where to.
        fault: what happens to the process of this number.
        folder: for its log.
    """
    due = folder / "due"
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        published = pool.submit(_publish, url, exchange, folder / "log.txt", due)
        fault(int(until(lambda: due.exists() and due.read_text(), "the fault is due")))
        ended = time.monotonic()
        run = published.result(_TIMEOUT_S)
    run.fault_ended = ended
    return run


def _publish(url: str, exchange: str, log: Path, due: Path) -> Run:
    logging.basicConfig(filename=log, level=logging.DEBUG)
    run = Run()
    run.publish(url, exchange, lambda _: due.write_text(str(os.getpid())))
    return run
