"""``rabbit-chx topology export`` of a file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slot_files import live_of, slotted

from rabbit_chx import Topology
from rabbit_chx.cli.export import _expressible
from rabbit_chx.routing import Release
from rabbit_chx.topology import LiveTopology, PolicyDefinition, QueueDefinition

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
def exported(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Exports the file; exit code, stdout, stderr."""
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return lambda *arguments: ran("topology", "export", "--from", str(path), *arguments)


def test_what_is_written_is_read_back_whatever_its_characters(
    exported: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, errors = exported()
    assert (code, errors) == (0, "")
    assert Topology.from_toml(out) == Topology.from_toml(FILE)
    assert "\u00ad" in out


def test_only_what_an_exchange_reaches(exported: Callable[..., tuple[int, str, str]]) -> None:
    found = Topology.from_toml(exported("orders")[1])
    assert exported("--exchange", "orders") == exported("orders")
    assert [exchange.name for exchange in found.exchanges] == ["orders"]
    assert exported("--exchange", "order")[2] == (
        "rabbit-chx: there is no exchange order: did you mean orders?\n"
    )


def test_the_reason_for_plain_slots_is_reported(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    live = live_of(slotted(4, '[{ queue = "events.1" }]', "events.1"))
    path = tmp_path / "plain.toml"
    path.write_text(live.to_toml())
    code, out, errors = ran("topology", "export", "--from", str(path))
    assert (code, errors) == (0, "")
    assert "slots = 4" in out
    left = tuple(binding for binding in live.bindings if binding.source != "events.slot.02")
    path.write_text(replace(live, bindings=left).to_toml())
    code, out, errors = ran("topology", "export", "--from", str(path))
    assert code == 0
    assert "slots =" not in out
    assert errors == (
        "rabbit-chx: the slots of events are written as plain exchanges and bindings: events.slot.02 is bound to no queue\n"
    )


def test_the_document_has_the_tables_of_the_file(exported: Callable[..., tuple[int, str, str]]) -> None:
    text, (code, out, errors) = exported()[1], exported("--output", "json")
    document: dict[str, Any] = json.loads(out)
    assert (code, errors) == (0, "")
    assert document == {"format": "rabbit-chx/topology", "format_version": 1, **tomllib.loads(text)}


def test_what_limits_a_plan_is_a_comment_to_be_chosen(
    exported: Callable[..., tuple[int, str, str]], ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    out = exported()[1]
    file = Topology.from_toml(out)
    assert (file.max_share_moved, file.owns) == (None, ())
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(re.sub(r"^# (?=max_share_moved|owns)", "", out, flags=re.MULTILINE))
    file = Topology.from_toml(chosen.read_text())
    assert file.max_share_moved == 0.2
    assert file.owns == ("orders", "other\u00ad\U0001f600", "orders.*")
    assert all(map(file.owned, ("orders", "orders.3")))
    again = ran("topology", "export", "--from", str(chosen))[1]
    assert "#" not in again, "what the file says is not asked for"
    assert Topology.from_toml(again) == file


def test_queues_are_listed_if_they_are_all_bindings(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "bound.toml"
    head = '[[exchanges]]\nname = "bills{}"\ntype = "x-modulus-hash"\n'
    bindings = '[[bindings]]\nsource = "bills{}"\nqueue = "b.{{1..3}}"\n'
    path.write_text(
        "".join(head.format(n) for n in "123")
        + bindings.format(1)
        + bindings.format(2)
        + 'routing_key = "5"\n'
        + '[[queues]]\nname = "b.{1..3}"\n'
    )
    code, out, _ = ran("topology", "export", "--from", str(path))

    assert code == 0
    found = Topology.from_toml(out)
    assert [exchange.queues for exchange in found.exchanges] == [("b.1", "b.2", "b.3"), None, None]
    assert found.bindings == Topology.from_toml(path.read_text()).bindings


@pytest.mark.parametrize(
    ("release", "faulty"),
    [("3.10.8", ["theirs"]), ("4.0.5", ["theirs", "mirrored"]), ("4.3.6", ["theirs", "old", "mirrored"])],
)
def test_the_release_of_the_broker_decides_what_a_file_expresses(release: str, faulty: list[str]) -> None:
    theirs = QueueDefinition("theirs", "delayed")  # a plugin's type, which no file expresses
    old = QueueDefinition("old", arguments={"x-queue-version": 1})
    mirrored = PolicyDefinition("mirrored", "^old$", definition={"ha-mode": "all"})
    live = LiveTopology(queues=(theirs, old), policies=(mirrored,), release=Release(release))
    written, faults = _expressible(live.objects)
    assert {fault.partition(":")[0].split()[1] for fault in faults} == set(faulty)
    assert written.problems == ()
    names = [queue.name for queue in written.queues] + [policy.name for policy in written.policies]
    assert names == [name for name in ("old", "mirrored") if name not in faulty]


def test_patterns_of_names_with_braces_are_patterns(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(Topology(queues=(QueueDefinition("a${b}"), QueueDefinition("$${b}.1"))).to_toml())
    out = ran("topology", "export", "--from", str(path))[1]
    chosen = Topology.from_toml(re.sub(r"^# (?=owns)", "", out, flags=re.MULTILINE))
    assert chosen.owns == ("$${b}.*", "a${b}")
