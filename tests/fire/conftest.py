"""Faults on real brokers and a real Spark, and the records that docs/guarantees.md is made from."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cluster import RunningCluster
from delivery_checker import History, Verdict, check
from guarantees import FireRecord, replace_records

from rabbit_chx.testing import RunningBroker, temporary_vhost

_HERE = Path(__file__).resolve().parent
_began = pytest.StashKey[float]()
_passed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--fire``, ``--soak-minutes`` and the files of their results."""
    group = parser.getgroup("fire", "faults on real brokers")
    group.addoption(
        "--fire", action="store_true", help="run all of tests/fire, not only what is representative"
    )
    group.addoption(
        "--fire-results",
        type=Path,
        metavar="FILE",
        help="put what each test of tests/fire came to into this file; a failed test's older record is removed",
    )
    group.addoption(
        "--soak-minutes",
        type=float,
        default=0.0,
        metavar="N",
        help="run the soak for so long; else it does not run",
    )
    group.addoption(
        "--soak-results", type=Path, metavar="FILE", help="put what the soak measured into this file"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the representative tests, unless all are wanted; and the soak only where its time is given."""
    left_out = [item for item in items if _HERE in item.path.parents and not _is_wanted(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_wanted(item: pytest.Item, config: pytest.Config) -> bool:
    if item.get_closest_marker("soak") is not None:
        return bool(config.getoption("--soak-minutes", default=0.0))
    return config.getoption("--fire", default=False) or item.get_closest_marker("representative") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep for `record` whether the test passed."""
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


class Recorder:
    """Checks a run and keeps its record, until the test has passed."""

    def __init__(self, item: pytest.Item, release: str) -> None:
        #: What there is one record of: the test's name and the release.
        self.place = _name(item), release
        self._began = time.monotonic()
        self.records: list[FireRecord] = []

    def __call__(
        self,
        history: History,
        *,
        path: str,
        fault: str,
        promise: str,
        recover_s: float | None = None,
        outcome: str = "complete",
        moved: int = 0,
        **of_group: Any,
    ) -> Verdict:
        """Check a run with the one checker, and record it.

        Args:
            history: what was handed over, confirmed and found.
            path: what published: ``"Publisher"``, ``"Spark batch"``, ...
            fault: what happened, in words for users.
            promise: what is promised under it, in words for users.
            recover_s: seconds from the end of the fault until the next confirm; None where that makes no sense.
            outcome: ``"complete"``, or the error's first words.
            moved: copies in another queue than the ring named at first.
            of_group: what a record of a group has besides.
        """
        verdict = check(history)
        assert verdict.passed, str(verdict)
        assert not self.records, "a test makes one record"
        self.records.append(
            FireRecord(
                path=path,
                fault=fault,
                promise=promise,
                test=self.place[0],
                release=self.place[1],
                rows=verdict.attempted,
                confirmed=verdict.acked,
                lost=verdict.faults.get("lost", 0),
                repeated=verdict.duplicated,
                out_of_order=verdict.faults.get("out of order", 0) if history.ordered else None,
                wrong_queue=verdict.faults.get("in the wrong queue", 0) if history.queue_for else None,
                recover_s=None if recover_s is None else round(recover_s, 1),
                outcome=outcome,
                seconds=round(time.monotonic() - self._began, 1),
                date=datetime.now(UTC).date().isoformat(),
                machine=_machine(),
                gone=max(0, verdict.acked - verdict.ok),  # none is lost
                moved=moved,
                **of_group,
            )
        )
        return verdict


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Checks the test's run and records it; what a failed test has recorded is not kept."""
    where = "chx_cluster" if "chx_cluster" in request.fixturenames else "broker"
    recorder = Recorder(request.node, request.getfixturevalue(where).version)
    yield recorder
    passed = request.node.stash.get(_passed, False)
    assert recorder.records or not passed, "this test has recorded nothing"
    results: Path | None = request.config.getoption("--fire-results", default=None)
    if results is not None:
        replace_records(results, recorder.records if passed else (), gone=[recorder.place])


@pytest.fixture
def cluster_vhost(chx_cluster: RunningCluster) -> Iterator[RunningBroker]:
    """The first node of a cluster that is together, with a fresh vhost in its URL."""
    chx_cluster.wait_until_together()
    with temporary_vhost(chx_cluster.nodes[0]) as home:
        yield home


def _name(item: pytest.Item) -> str:
    """Return the node id without the release, which the record has apart."""
    bare, bracket, _ = item.nodeid.partition("[")
    call: Any = getattr(item, "callspec", None)
    if not bracket or call is None:
        return bare
    series = call.params.get("_chx_series")
    parameters = [parameter for parameter in call._idlist if parameter != series]
    return f"{bare}[{'-'.join(parameters)}]" if parameters else bare


def _machine() -> str:
    """Return what the machine has: its cores and its memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB"
