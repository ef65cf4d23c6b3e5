"""The examples without Spark, with fewer messages than they have by themselves."""

from __future__ import annotations

import asyncio
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


@pytest.mark.parametrize("way", ["by-key", "by-header", "by-property"])
@pytest.mark.parametrize("program", ["plugin_readme_pika", "plugin_readme_aio_pika"])
def test_the_counts_of_the_plugins_readme_are_as_predicted(
    vhost: RunningBroker, program: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example(program).run(vhost, way, 1_000)
    said = capsys.readouterr().out
    assert "1,000 messages confirmed in " in said
    assert f"{way}.4        2" in said
    assert "predicted and counted are equal" in said


def test_counts_that_differ_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    readme = example("plugin_readme")
    from rabbit_chx import HashRing

    ring = HashRing.from_bindings({"a": 1, "b": 2})
    assert readme.compared(ring, {"a": 1, "b": 2}, {"a": 1, "b": 2})
    assert not readme.compared(ring, {"a": 1, "b": 2}, {"a": 2, "b": 1})
    assert not readme.compared(ring, {"b": 2}, {"a": 1, "b": 2})
    assert "COUNTED DIFFER" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["after.toml", "after_without_gap.toml"])
def test_each_message_of_a_change_under_load_is_accounted_for(
    vhost: RunningBroker, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change = example("topology_change_under_load")
    assert asyncio.run(change.changed_under_load(vhost, change.FOLDER / file, 1_500, 0.5))
    said = capsys.readouterr().out
    assert "50.0% of the keys move in the end" in said
    assert "; 0 in a queue that no ring of the plan explains" in said
    if file == "after_without_gap.toml":
        assert "0.0% have no queue at the worst moment" in said
        assert " + returned 0\n" in said
    stages = re.findall(r"^ (before|unbind|bind) .*?([\d,]+) +([\d,]+)$", said, re.MULTILINE)
    assert len(stages) == 5
    assert int(stages[-1][1].replace(",", "")) > 100


def test_a_message_where_no_ring_of_the_plan_has_it_is_not_explained() -> None:
    change = example("topology_change_under_load")
    from rabbit_chx import ConsistentHashExchange, HashRing

    rings = [HashRing.from_bindings(bindings) for bindings in ({"a": 1}, {}, {"b": 1})]
    moments = [change.Moment(str(n), ConsistentHashExchange("x", ring)) for n, ring in enumerate(rings)]
    load = change.Load(publisher=None, channel=None, rate=1, sent=6)
    load.found = {0: "a", 1: "b", 3: "a", 5: "b"}  # 2 and 4 came back too late, and 3 is in a queue of before
    assert change.account(load, moments) == 3
    assert [(moment.routed, moment.returned) for moment in moments] == [(1, 0), (0, 0), (2, 0)]
