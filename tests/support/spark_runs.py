"""Writes by Spark that a fault happens to: the rows, the report, and what is judged of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import spark_jobs
from bounded import until
from canary import traces_of_canary
from delivery_checker import Attempt, History
from fire_queues import EXCHANGE, ring_of
from fire_site import Site
from process_table import Process
from publishing_support import through
from row_reader import drained
from spark_driver import JobFailedError, SparkDriver

BATCH_PATHS = {"format": "Spark batch", "publish": "Spark batch, publish()"}
STREAM_PATHS = {"format": "Spark stream", "foreachBatch": "Spark stream, foreachBatch"}

_START_S = 120.0
_END_S = 240.0
_MORE_S = 90.0
_POLL_S = 0.1
_WORDS = 120


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        error: what it raised; None if it succeeded.
        recover_s: seconds from the end of the fault until more rows were in the queues; None where none came.
    """

    error: str | None
    recover_s: float | None = None

    @property
    def outcome(self) -> str:
        """What the record says."""
        return "complete" if self.error is None else first_words(self.error)


class SparkRun:
    """A job of a driver on a site, whose rows trickle until a fault has begun.

    Args:
        driver: the driver.
        site: the site.
        folder: it gets the report, or the folder `reports` of a stream's batches.
        options: options of the connector, beside the usual ones.
        by_proxy: whether the rows go through the site's proxy.
    """

    def __init__(
        self,
        driver: SparkDriver,
        site: Site,
        folder: Path,
        options: Mapping[str, str],
        *,
        by_proxy: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.driver = driver
        self.site = site
        self.folder = folder
        self._begins = folder / "the fault begins"
        self.begun = folder / "the fault has begun"
        self.report_path = folder / "report.json"
        self.options = {
            "url": through(site.url, site.proxy.port) if by_proxy else site.url,
            "exchange": EXCHANGE,
            "reportPath": str(self.report_path),
            **options,
        }
        self._job = 0

    def begin(self, function: Callable[..., None], **arguments: Any) -> None:
        """Start a function of `spark_jobs`."""
        arguments.setdefault("step", spark_jobs.Trickle(self.begun, slower_from=self._begins))
        self._job = self.driver.begin(function, options=self.options, **arguments)

    def meet(self, fault: AbstractContextManager[Any], at_row: int, *, connected: bool = False) -> float:
        """Let the fault happen when so many rows are in the queues; return when it was over.

        Args:
            fault: the fault, for as long as it lasts.
            at_row: how many rows.
            connected: whether it waits until a task of a driver without executors has a connection.
        """
        self.site.wait_for_rows(at_row, _START_S, lambda: not self.driver.has_answered(self._job))
        self._begins.touch()
        if connected:
            self.those_that_publish(self.driver.workers)
        with fault:
            self.begun.touch()
        return time.monotonic()

    def end_unharmed(self) -> Ended:
        """Wait for the end of a job that nothing happens to from outside. The driver and the run have not written the password."""
        error = None
        try:
            self.driver.answer(self._job, _END_S)
        except JobFailedError as cause:
            error = str(cause)
        for folder in (self.driver.folder, self.folder):
            assert traces_of_canary(folder) == [], f"the password is in {folder}"
        return Ended(error)

    def end(self, over_at: float) -> Ended:
        """Wait for the end of the job, and watch for rows after the end of the fault, which was over at this time."""
        recover_s = self._until_more(over_at)
        ended = self.end_unharmed()
        return ended if ended.error else replace(ended, recover_s=recover_s)

    @property
    def port(self) -> int:
        """The port that the rows go to."""
        return urlsplit(self.options["url"]).port or 5672

    def those_that_publish(self, among: Callable[[int], list[Process]]) -> list[Process]:
        """Wait for processes that are connected to the broker.

        Args:
            among: finds those that are connected to a port: `SparkDriver.workers` or `executors`.
        """
        return until(lambda: among(self.port), "a process publishes", _START_S)

    @property
    def report(self) -> dict[str, Any]:
        """The report of a batch write."""
        report: dict[str, Any] = json.loads(self.report_path.read_text())
        return report

    def _until_more(self, over_at: float) -> float | None:
        before = self.site.rows_there()
        while not self.driver.has_answered(self._job) and time.monotonic() < over_at + _MORE_S:
            if self.site.rows_there() > before:
                return time.monotonic() - over_at
            time.sleep(_POLL_S)
        return None

    def history(
        self,
        rows: int,
        confirmed: Collection[int] | int,
        *,
        ordered: bool,
        placed: bool = True,
        republished: int | None = None,
        loses: str | None = None,
        rebound: bool = False,
    ) -> History:
        """Read the queues to their end, and return what is judged.

        Args:
            rows: how many rows there are.
            confirmed: the rows that a report calls confirmed, or their number.
            ordered: whether a key's rows are promised to come in order.
            placed: whether each row is promised to be where the ring said at the beginning.
            republished: how many copies the reports count; None where whole tasks were repeated.
            loses: the queue that was deleted with its rows.
            rebound: whether bindings were removed and added again.
        """
        read = drained(self.site.broker.url, self.site.queues)
        attempted = [Attempt(row, spark_jobs.key_of(row)) for row in range(rows)]
        queue_for = ring_of(self.site.broker.version).destination_for
        return History(
            attempted=attempted,
            acked=confirmed,
            found=read.found,
            unread=read.unread,
            queue_for=(lambda key: str(queue_for(key))) if placed else None,
            ordered=ordered,
            republished=republished,
            elsewhere=[row.id for row in attempted if queue_for(row.key) == loses],
            rebound=rebound,
        )


def counted_copies(report: Mapping[str, Any]) -> int:
    """Return how many copies a report accounts for: what was sent again, and the rows of tasks that were run again."""
    return int(report["republished"] + sum(task["attempt"] * task["rows"] for task in report["tasks"]))


def reports_in(folder: Path) -> list[dict[str, Any]]:
    """Return the reports of the batches that were written, in their order."""
    paths = sorted(folder.glob("batch-*.json"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
    reports = [json.loads(path.read_text()) for path in paths]
    return [report for report in reports if not report["failed"]]


def first_words(error: str) -> str:
    """Return what an error says, without what Spark puts around it, and without the task and the address."""
    ours = re.search(r"(?:Error|Exception): partition \d+: (.*)", error)
    words = (ours[1] if ours else re.sub(r"^.*?(?=\[[A-Z_]+)", "", error, flags=re.DOTALL)).splitlines()[0]
    words = re.sub(r"amqps?://\S+: ", "", words)
    return words if len(words) <= _WORDS else f"{words[: words.rindex(' ', 0, _WORDS)]} ..."
