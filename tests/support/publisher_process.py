"""A publisher in a process of its own, which can be stopped and continued.

A program as well: it reads from its input where to publish, says when the fault is due, and at
the end what became of the rows.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fire_load import Load, Run

from rabbit_chx.publishing import PublishReport

_DUE = "the fault is due"
_TIMEOUT_S = 120


def publish_in_process(
    url: str, exchange: str, fault: Callable[[subprocess.Popen[str]], None], folder: Path
) -> Run:
    """Publish under a fault of the process.

    Args:
        url: the broker; it goes to the process by its input, where no list of processes shows it.
        exchange: where to.
        fault: what happens to the process.
        folder: for its log.
    """
    log = folder / "log.txt"
    command = [sys.executable, __file__, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([url, exchange]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{_DUE}\n", log.read_text()
            fault(process)
            ended = time.monotonic()
            said, _ = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    handed, confirms, report = json.loads(said)
    return Run(handed=handed, confirms=confirms, report=PublishReport(**report), fault_ended=ended)


def main() -> None:
    """Be the process."""
    logging.basicConfig(filename=sys.argv[1], level=logging.DEBUG)
    url, exchange = json.loads(sys.stdin.readline())
    run = Run(Load())
    run.publish(url, exchange, lambda _: print(_DUE, flush=True))  # noqa: T201  # for the test that started it
    assert run.error is None, run.error
    print(json.dumps([run.handed, run.confirms, asdict(run.report)]))  # noqa: T201


if __name__ == "__main__":
    main()
