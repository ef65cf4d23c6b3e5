"""``rabbit-chx export`` of a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx import Topology
from rabbit_chx.cli.export import _expressible
from rabbit_chx.routing import Release
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, PolicyDefinition, QueueDefinition

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..3}" }]
[[exchanges]]
name = "other\u00ad\U0001f600"
[[queues]]
name = "orders.{1..3}"
type = "quorum"
"""


@pytest.fixture
def exported(ran: Ran, tmp_path: Path) -> Ran:
    """Exports the file; exit code, stdout, stderr."""
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return lambda *arguments: ran("export", "--from", str(path), *arguments)


def test_what_is_written_is_read_back_whatever_its_characters(
    exported: Ran, ran: Ran, tmp_path: Path
) -> None:
    """What limits a plan is a comment, to be chosen."""
    code, out, errors = exported()
    assert (code, errors, "\u00ad" in out) == (0, "", True)
    assert Topology.from_toml(out) == Topology.from_toml(FILE)
    document = json.loads(exported("--output", "json")[1])
    assert document == {"format": "rabbit-chx/topology", "format_version": 1, **tomllib.loads(out)}
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(re.sub(r"^# (?=max_share_moved|owns)", "", out, flags=re.MULTILINE))
    file = Topology.from_toml(chosen.read_text())
    assert (file.max_share_moved, file.owns) == (
        0.2,
        ("orders", "other\u00ad\U0001f600", "orders.1", "orders.2", "orders.3"),
    )
    assert '"orders.{1..3}"' in out
    assert all(map(file.owned, ("orders", "orders.3")))
    assert not file.owned("orders.4"), "a queue whose binding was forgotten is not the file's"
    again = ran("export", "--from", str(chosen))[1]
    assert "#" not in again, "what the file says is not asked for"
    assert Topology.from_toml(again) == file


@pytest.mark.parametrize("release", ["3.10.8", "4.0.5", "4.3.6"])
def test_what_no_file_expresses_is_left_out_and_what_a_release_would_refuse_is_not(release: str) -> None:
    theirs = QueueDefinition("theirs", "delayed")  # a plugin's type, which no file expresses
    old = QueueDefinition("old", arguments={"x-queue-version": 1})
    mirrored = PolicyDefinition("mirrored", "^old$", definition={"ha-mode": "all"})
    live = LiveTopology(queues=(theirs, old), policies=(mirrored,), release=Release(release))
    written, faults = _expressible(live.as_wanted())
    assert [fault.partition(":")[0].split()[1] for fault in faults] == ["theirs"]
    assert written.problems == ()
    names = [queue.name for queue in written.queues] + [policy.name for policy in written.policies]
    assert names == ["old", "mirrored"]


def test_a_name_that_would_own_others_as_a_pattern_is_not_proposed(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(Topology(queues=(QueueDefinition("a*"), QueueDefinition("b"))).to_toml())
    assert '# owns = ["b"]\n' in ran("export", "--from", str(path))[1]


def test_patterns_of_names_with_braces_are_patterns(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(Topology(queues=(QueueDefinition("a${b}"), QueueDefinition("$${b}.1"))).to_toml())
    out = ran("export", "--from", str(path))[1]
    chosen = Topology.from_toml(re.sub(r"^# (?=owns)", "", out, flags=re.MULTILINE))
    assert chosen.owns == ("$${b}.1", "a${b}")


def test_an_exchange_without_bindings_has_no_order_that_could_be_unknown(
    ran: Ran, modelled: ModelledCommands
) -> None:
    modelled.holds(live_of(Topology((ExchangeDefinition("orders", "x-consistent-hash"),))))
    modelled.has_source = False
    code, out, errors = ran("export", "--url", "amqp://model", "--management-url", "http://model:15672")
    assert (code, "is not known" in out, "move keys" in errors) == (0, False, False)


def test_an_order_that_is_not_known_is_in_the_file_and_in_the_exit_code(
    ran: Ran, modelled: ModelledCommands
) -> None:
    modelled.holds(live_of(Topology.from_toml(FILE)))
    modelled.has_source = False
    code, out, errors = ran("export", "--url", "amqp://model", "--management-url", "http://model:15672")
    assert code == 3
    assert "# The order of the ring of 'orders' is not known" in out
    assert {exchange.name for exchange in Topology.from_toml(out).exchanges} == {
        "orders",
        "other\u00ad\U0001f600",
    }
    assert "the order of orders is unknown, and a plan of this file would move keys" in errors
    modelled.has_source = True
    code, out, _ = ran(*modelled.of_broker("export"))
    assert (code, "is not known" in out) == (0, False)
