"""Each block of Python or of a console runs alone: in an empty folder, on an empty broker, as written but for addresses and waits.

It prints what the page says. Pages that are typed from top to bottom (the README, change-an-exchange.md, managed-brokers.md) have tests of their own,
and the `>>>` blocks of a page are one session.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blocks import PAGES as ALL_PAGES
from blocks import check_output, console_examples, page, python_blocks, run_command

from rabbit_chx import Broker
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

#: Pages whose blocks are all run here.
PAGES = [
    "docs/publish/README.md",
    "docs/spark/README.md",
    "docs/streams/README.md",
    "docs/publish/consuming.md",
    "docs/streams/dataframes.md",
    "docs/publish/deduplication.md",
    "docs/spark/placement.md",
    "docs/publish/bulk.md",
    "docs/spark/streams.md",
    "docs/spark/write.md",
    "docs/streams/groups.md",
    "docs/streams/python.md",
    "docs/reference/topology.md",
]
#: Pages with other blocks, and what runs or reads those.
OTHERS = {
    "docs/operate/change-an-exchange.md": "typed from top to bottom",
    "docs/operate/adopt-an-exchange.md": "typed from top to bottom",
    "docs/operate/sharding.md": "test_sharding_page.py applies the file of the page first",
    "docs/testing.md": "a test file of a user",
    "docs/publish/web-services.md": "test_web_services.py serves it",
}
#: Paths that Spark resolves in the folder of its JVM, not in ours.
SPARK_PATHS = (
    "ticks.checkpoint",
    "routes.checkpoint",
    "trips.checkpoint",
    "trips.parquet",
    "reports",
    "drained",
)
#: The PySpark that the first of these texts in a block needs.
NEEDS_PYSPARK = {
    'readStream.format("rabbitmq")': "4.2",
    'writeStream.format("rabbitmq")': "4.1",
    "pushFilters": "4.1",
    'format("rabbitmq")': "4.0",
}
#: The release that a block with one of these texts needs, and for what.
NEEDS_RELEASE = {
    "super_stream=": (">=3.13", "super streams are created by the stream protocol"),
    "filter_value=": (">=3.13", "filters of streams"),
    '"x-delivery-limit": -1': (">=4.0", "a delivery limit that is off"),
}


def release_marks(*blocks: str) -> list[pytest.MarkDecorator]:
    """Return the markers for what these blocks need of a broker."""
    return [
        pytest.mark.chx_broker(*needs)
        for text, needs in NEEDS_RELEASE.items()
        if any(text in block for block in blocks)
    ]


CONSOLES = [
    pytest.param(block, id=f"{Path(name).stem}-{number}")
    for name in ("docs/choose.md", "docs/operate/fix-an-exchange.md")
    for number, block in enumerate(
        re.findall(r"^```console\n.*?^```$", page(name), re.DOTALL | re.MULTILINE), 1
    )
]


def blocks() -> Iterator[Any]:
    """The blocks of the pages, with the PySpark that they need."""
    for name in PAGES:
        for number, block in enumerate(python_blocks(name), 1):
            marks = [pytest.mark.spark] if "pyspark" in block else []
            marks += release_marks(block)
            needs = next(((newest, text) for text, newest in NEEDS_PYSPARK.items() if text in block), None)
            if "pyspark" in block and needs:
                marks.append(pytest.mark.pyspark(*needs))
            yield pytest.param(block, id=f"{Path(name).stem}-{number}", marks=marks)


def addressed(block: str, vhost: RunningBroker) -> str:
    """Return a block with the addresses of a vhost."""
    assert vhost.management_url is not None
    assert vhost.ring_via is not None
    here = re.sub(r"rabbitmq-stream://(guest:guest@)?localhost(:5552)?(?=\")", vhost.stream_url, block)
    here = re.sub(r"amqp://(guest:guest@)?localhost(?=[\" ])", vhost.url, here)
    here = re.sub(r"http://(guest:guest@)?localhost:15672", vhost.management_url, here)
    return here.replace("docker exec rabbitmq", shlex.join(vhost.ring_via))


@pytest.fixture
def run(
    vhost: RunningBroker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., None]:
    """Runs a block, and compares what it prints with the comments of its calls of print."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)

    def run_block(block: str, *, compare: bool = True) -> None:
        here = re.sub(r"(call_later|awaitTermination)\(10\b", r"\1(3", addressed(block, vhost))
        for name in SPARK_PATHS:
            here = here.replace(f'"{name}"', repr(str(tmp_path / name)))
        capsys.readouterr()
        exec(compile(here, "block", "exec"), {"__name__": "__main__"})  # noqa: S102  # that is what is tested
        printed = capsys.readouterr().out
        promised = re.findall(r"print\(.*\)  # (.*)", block)
        if not compare or not promised:
            return
        if len(promised) == block.count("print("):
            assert printed.splitlines() == promised
        else:
            check_output(printed, "\n".join(["...", *promised, ""]))

    return run_block


def test_each_page_with_python_is_run() -> None:
    assert sorted([*PAGES, *OTHERS]) == [name for name in ALL_PAGES if python_blocks(name)]


@pytest.mark.parametrize("block", list(blocks()))
def test_the_block_runs_alone(run: Callable[..., None], block: str) -> None:
    run(block)


@pytest.mark.spark
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_the_queues_have_the_rows_of_the_first_write_of_spark(vhost: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(addressed(python_blocks("docs/spark/write.md")[0], vhost))
    ((command, shown),) = console_examples(page("docs/spark/write.md"))
    here = addressed(command, vhost).replace(
        "list_queues", f"list_queues -p {ConnectionSettings.from_uri(vhost.url).vhost}"
    )
    assert run_command(here, 120, tmp_path).stdout.decode() == shown


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=release_marks(*(block for block in found if "pyspark" not in block)))
        for name in PAGES
        if len(found := python_blocks(name)) > 1
    ],
)
def test_the_blocks_run_one_after_the_other(run: Callable[..., None], name: str) -> None:
    """Those without Spark, since a reader does not empty the broker before each. They may print other numbers."""
    for block in python_blocks(name):
        if "pyspark" not in block:
            run(block, compare=False)


@pytest.mark.core
@pytest.mark.parametrize("block", CONSOLES)
def test_the_console_runs_alone(vhost: RunningBroker, tmp_path: Path, block: str) -> None:
    typed = ""
    if "rabbit-chx check " in block:  # of nothing it exits with 2
        with Broker(vhost.url, vhost.management_url) as broker:
            broker.declare("found", {"found.1": 1})
    for command, shown in console_examples(addressed(block, vhost) + "\n"):
        if command.startswith("export "):
            typed += f"{command}\n"
        else:
            ran = run_command(f"{typed}{command}", 60, tmp_path)
            assert ran.returncode == 0, ran.stderr.decode()
            check_output(ran.stdout.decode(), shown)
