"""The checksum changes with each side, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from sides import as_live

from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, Topology, plan

_RELEASE = Release("4.3.6")
_RING = (RingMember("a"), RingMember("b", "2"))


def _topology(ring: tuple[RingMember, ...] = _RING, **about: object) -> Topology:
    exchange = replace(ExchangeDefinition("h", "x-consistent-hash", ring=ring), **about)  # type: ignore[arg-type]
    return Topology((exchange,), tuple(QueueDefinition(name) for name in "abc"))


def _live(*buckets: str, release: Release = _RELEASE) -> LiveTopology:
    ring = HashRing.from_buckets(buckets, release)
    return as_live(_topology(), release=release).with_rings({"h": ring})


_WANTED = _topology((*_RING, RingMember("c")))
_THERE = _live("a", "b", "b")
_CHECKSUM = plan(_WANTED, _THERE).checksum


def _with_argument(value: object) -> Topology:
    queue = QueueDefinition("c", arguments={"k": value})
    return replace(_WANTED, queues=(*_WANTED.queues[:2], queue))


@pytest.mark.parametrize(
    "side",
    [
        _topology((*_RING, RingMember("c", "1", {"k": 1}))),
        replace(_WANTED, max_share_moved=0.5),
        replace(_WANTED, cluster="rabbit@prod"),
        replace(_WANTED, owns=("x",)),
        replace(_WANTED, exchanges=(replace(_WANTED.exchanges[0], max_share_moved=0.1),)),
        _live("b", "b", "a"),
        _live("a", "b", "b", release=Release("4.0.5")),
        replace(_THERE, rings={}),
        replace(_THERE, cluster="rabbit@prod"),
        replace(_THERE, vhost="prod"),
        replace(_THERE, queues=(QueueDefinition("a"), QueueDefinition("b"))),
    ],
)
def test_another_side_is_another_checksum(side: Topology | LiveTopology) -> None:
    made = plan(_WANTED, side) if isinstance(side, LiveTopology) else plan(side, _THERE)
    assert made.checksum != _CHECKSUM


def test_types_of_arguments_count() -> None:
    sides = map(_with_argument, (1, 1.0, True, "1"))
    assert len({_CHECKSUM, *(plan(side, _THERE).checksum for side in sides)}) == 5


def test_what_others_declare_and_how_a_share_is_written_does_not_count() -> None:
    with_others = replace(_THERE, queues=(*_THERE.queues, QueueDefinition("reply.1")))
    assert plan(_WANTED, with_others).checksum == _CHECKSUM
    ring = '[[exchanges]]\nname = "h"\ntype = "x-consistent-hash"\nring = []\n'
    for place in ("", ring):
        one, same = (Topology.from_toml(f"{place}max_share_moved = {share}\n") for share in ("1", "1.0"))
        assert plan(one, LiveTopology()).checksum == plan(same, LiveTopology()).checksum


def test_another_python_process_finds_the_same() -> None:
    code = (
        "from rabbit_chx.topology import *\nfrom rabbit_chx.topology import plan\n"
        "t = Topology((ExchangeDefinition('h', 'x-consistent-hash', arguments={'b': 1, 'a': {'d': 2, 'c': 3}}, "
        "ring=(RingMember('q'),)),), (QueueDefinition('q'),))\nprint(plan(t, LiveTopology()).checksum)\n"
    )
    first, second = (
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    )
    assert first == second
