"""Exit codes and documents of `drill`, by what became of the messages; and the environment of its command."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import main
from rabbit_chx.cli.broker_options import LiveBroker
from rabbit_chx.cli.drill import DrillOptions, DrillReport
from rabbit_chx.rendering import Facts, Line, Table
from rabbit_chx.testing.drill import CommandRun, DrillRecord, copy_of
from rabbit_chx.testing.drill_verdict import SentBatch, drill_verdict
from rabbit_chx.topology import QueueDefinition, Topology

OPTIONS = {"rate": 200.0, "seconds": 2.0, "timeout": 600.0, "work": 0.0, "group": False, "allow": ()}
URL = "amqp://user:secret@h/shop"


def report(
    arrivals: str,
    exit_code: int | None = 0,
    rows: int = 4,
    *,
    left: int = 0,
    **options: Any,
) -> DrillReport:
    """Return the report of messages of which those came whose numbers the text has, one each second."""
    run = CommandRun(["/bin/change", "--password=secret"], {}, 2, 600, 1.2, 2.4, exit_code)
    batches = [SentBatch(n, range(n, n + 1), 1, 0) for n in range(rows)]
    verdict = drill_verdict(batches, [(int(number), "q") for number in arrivals], ["a", "b"], 1, left)
    how = DrillOptions(**{**OPTIONS, **options})
    return DrillReport("orders", "t.toml", run, how, verdict, {"q": left} if left else {})


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (report("0123"), 0, "each message came, in the order of its key"),
        (report("012"), 1, "broken: 1 lost"),
        (report("0321"), 1, "broken: 1 out-of-order"),
        (report("00123"), 0, "each message came, in the order of its key"),
        (report("012", 7), 1, "broken: 1 lost"),
        (report("0123", 7), 3, "each message came, in the order of its key; but COMMAND failed, so this shows little"),
        (report("0123", None), 3, "COMMAND failed"),
        (report("", rows=0), 3, "nothing is proven: no message came"),
        (report("012", allow=("lost",)), 0, "but for what --allow lets pass: lost"),
        (report("032", allow=("out-of-order",)), 1, "broken: 1 lost"),
        (report("01", left=2), 3, "not proven: 2 still in queues; lower --rate or --work"),
        (report("01", left=1), 1, "broken: 1 lost"),
    ],
)  # fmt: skip
def test_the_exit_code_and_the_verdict(given: DrillReport, code: int, says: str) -> None:
    assert given.code == code
    facts = next(block for block in given.blocks() if isinstance(block, Facts))
    assert says in dict(facts.pairs)["verdict"]


def test_the_document() -> None:
    document = report("012").as_json()
    assert document["broken"] == {"lost": 1}
    assert document["totals"]["published"] == 4
    assert [second["phase"] for second in document["by_second"]] == ["before", "command", "command", "after"]
    assert document["command"] == {"program": "change", "exit_code": 0, "began_s": 1.2, "ended_s": 2.4}
    assert "secret" not in str(document)


def test_the_table_has_what_there_was() -> None:
    table = next(block for block in report("012").blocks() if isinstance(block, Table))
    assert [column.heading for column in table.columns] == ["second", "", "published", "confirmed", "lost"]
    assert table.rows[3] == ("3", "after", 1, 1, 1)
    assert table.total == ["all", "", 4, 4, 1]


def test_of_a_long_drill_the_seconds_are_shown_in_which_something_happened() -> None:
    given = report("0", rows=60)
    table = next(block for block in given.blocks() if isinstance(block, Table))
    assert [row[0] for row in table.rows] == [str(n) for n in range(1, 21)]
    assert Line("The others of 60 seconds are not shown: --output json has all of them.") in [*given.blocks()]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--exchange", "x", "--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "AMQP_URL=amqp://u:c4nary@h", "x.sh"], "write -- env NAME=VALUE ./change.sh"),
        (["--", "true"], "give --exchange NAME, or --topology FILE"),
        (["--exchange", "x", "--", "true"], "give --management-url"),
        (["--exchange", "x"], "COMMAND"),
    ],
)  # fmt: skip
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["drill", "--url", URL, *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "c4nary" not in err


@pytest.mark.parametrize(("waiting", "looks"), [([False, False, True], 3), ([True], 1)])
def test_it_waits_while_consumed_queues_are_not_empty(
    monkeypatch: pytest.MonkeyPatch, waiting: list[bool], looks: int
) -> None:
    for name in ("_QUIET_S", "_PATIENCE_S", "_LOOK_S"):
        monkeypatch.setattr(f"rabbit_chx.testing.drill.{name}", 0.0)
    answers, asked = iter(waiting), []

    async def is_empty() -> bool:  # scripted: a backlog
        asked.append(next(answers))
        return asked[-1]

    asyncio.run(DrillRecord(batches=[SentBatch(0, range(2), 2, 0)]).all_came(0.0, is_empty))
    assert len(asked) == looks


def test_a_command_means_the_broker_and_the_vhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "environ", {"PATH": "/bin", "AMQP_URL": "amqp://other", "RABBIT_CHX_VHOST": "prod"}
    )
    live = LiveBroker(URL, ConnectionSettings.from_uri(URL), "http://h:15672", None, "docker exec rabbitmq")
    assert live.in_vhost("a copy").environment() == {
        "PATH": "/bin",
        "AMQP_URL": "amqp://user:secret@h/a%20copy",
        "RABBIT_CHX_VHOST": "a copy",
        "RABBIT_CHX_MANAGEMENT_URL": "http://h:15672",
        "RABBIT_CHX_RING_VIA": "docker exec rabbitmq",
    }


def test_all_of_a_topology_is_declared_in_the_copy() -> None:
    topology = Topology.from_toml(
        'cluster = "prod"\nmax_share_moved = 0.1\n[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nowner = "external"\n'
        'ring = [{ queue = "q1" }, { queue = "q2" }]\n[[queues]]\nname = "q1"\nowner = "external"\nexclusive = true\n'
    )
    copy = copy_of(topology)
    assert copy.queues == (QueueDefinition("q1"), QueueDefinition("q2"))
    assert (copy.cluster, copy.max_share_moved, copy.exchanges[0].owner) == (None, None, "ours")
