"""What a notebook shows of rings, slots, topologies, plans, checks and reports: images and tables, without a script."""

from __future__ import annotations

import base64
from typing import Protocol

import pytest
from pages import Page, parsed_svg
from plan_scenarios import SCENARIOS

from rabbit_chx import ExchangeRef, HashRing, PublishReport, SlotTable, Topology
from rabbit_chx.analysis import Finding
from rabbit_chx.topology import TopologyCheck, plan
from spark_connector.dry_runs import DryRun, HotKey, PartitionRows
from spark_connector.reports.task_report import RowSample, TaskReport
from spark_connector.reports.write_report import WriteReport

EVIL = "<script>alert(1)</script>"
RING = HashRing.from_buckets([EVIL, "q2", None, "q2"])
SLOT = ExchangeRef("s")
TASKS = tuple(
    TaskReport(
        n,
        n,
        "w",
        rows=1_234_567,
        publish_report=PublishReport(rows=1_234_567, confirmed=1_234_566, returned=1, seconds=2.0),
        predicted={EVIL: 1_000_000, "q2": 234_567},
        samples=(RowSample(n, None, EVIL),),
        notes=(EVIL,),
    )
    for n in range(2)
)
WRITE = WriteReport(
    "x", TASKS, "read", notes=(EVIL,), failed=True, unfinished=1, changed_ring=(RING, RING.unbind("q2"))
)
DRY = DryRun(
    "x",
    "amqp://h",
    {EVIL: "routing key"},
    (PartitionRows(0, 30, {EVIL: 10, "q2": 20}),),
    "read",
    {EVIL: 0.25, "q2": 0.75},
    (HotKey(EVIL, 20, "q2"),),
    {EVIL: 3},
    (EVIL,),
    (EVIL,),
)
CHECK = TopologyCheck((Finding("hole", EVIL, EVIL, exchange="x"),), ("x",), rings={"x": RING})
FILE = f'[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{{ queue = "{EVIL}" }}, {{ queue = "q2" }}]\n'


class _Shown(Protocol):
    def _repr_html_(self) -> str: ...


def images(page: Page) -> list[str]:
    """The text of each image."""
    sources = [str(image["src"]).partition(",")[2] for image in page.named("img")]
    return ["".join(parsed_svg(base64.b64decode(source).decode()).itertext()) for source in sources]


@pytest.mark.parametrize(
    ("shown", "words", "figures"),
    [
        (RING, "33.357%", 1),
        (HashRing.from_buckets([]), "", 1),
        (SlotTable(HashRing.from_buckets([SLOT, "q2"]), {SLOT: EVIL}), "q2", 1),
        (Topology.from_toml(f'{FILE}[[queues]]\nname = "{EVIL}"\n[[queues]]\nname = "q2"\n'), "queues", 1),
        (plan(*next(SCENARIOS[name] for name in SCENARIOS if name.startswith("07"))), "fewest-steps", 7),
        (plan(Topology(), Topology()), "no change", 0),
        (CHECK, "hole", 1),
        (TopologyCheck((), ()), "sound", 0),
        (PublishReport(rows=1_234_567, confirmed=1_234_567), "1,234,567", 0),
        (WRITE, "2,469,134", 3),
        (DRY, "amqp://h", 3),
    ],
)
def test_a_notebook_shows_images_and_tables(shown: _Shown, words: str, figures: int) -> None:
    page = Page(shown._repr_html_())
    assert not {"script", "style", "svg", "input"} & {tag for tag, _ in page.tags}
    assert len(images(page)) == figures
    assert words in page.text
    assert all(image["alt"] for image in page.named("img"))


def test_the_table_of_a_ring_has_its_shares() -> None:
    (table,) = Page(RING._repr_html_()).tables
    shares = {
        "(nobody)" if place is None else str(place): f"{share:.3%}" for place, share in RING.shares().items()
    }
    assert {row[0]: row[-1] for row in table[1:]} == shares


@pytest.mark.parametrize(
    ("report", "most"), [(WRITE, "1,234,567, attempt 1"), (DRY, "has 1.33 times the mean")]
)
def test_reports_of_spark_are_pages(report: WriteReport | DryRun, most: str) -> None:
    page = Page(report.to_html())
    assert most in page.text
    assert page.text.count(EVIL) > 5
    assert "Load of each queue" in page.text


def test_a_write_without_a_ring_has_a_page() -> None:
    page = Page(WriteReport("x", (), None).to_html())
    assert "Load of each queue" not in page.text
    assert not page.named("figure")
