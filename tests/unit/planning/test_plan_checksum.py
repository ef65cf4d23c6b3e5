"""The checksum changes with each side, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_hash_exchange import hashing, with_buckets
from sides import as_live

from rabbit_chx.routing import Release
from rabbit_chx.topology import LiveTopology, QueueDefinition, RingMember, Topology, plan

_RING = ("a", RingMember("b", "2"))
_WANTED = hashing(*_RING, "c")
_THERE = with_buckets(hashing(*_RING), "a", "b", "b")
_CHECKSUM = plan(_WANTED, _THERE).checksum


@pytest.mark.parametrize(
    "side",
    [
        hashing(*_RING, RingMember("c", "1", {"k": 1})),
        replace(_WANTED, max_share_moved=0.5),
        replace(_WANTED, cluster="rabbit@prod"),
        replace(_WANTED, owns=("x",)),
        replace(_WANTED, exchanges=(replace(_WANTED.exchanges[0], max_share_moved=0.1),)),
        with_buckets(hashing(*_RING), "b", "b", "a"),
        as_live(_THERE, release=Release("4.0.5")),
        replace(_THERE, rings={}),
        replace(_THERE, cluster="rabbit@prod"),
        replace(_THERE, vhost="prod"),
        replace(_THERE, queues=_THERE.queues[:2]),
    ],
)
def test_another_side_is_another_checksum(side: Topology | LiveTopology) -> None:
    made = plan(_WANTED, side) if isinstance(side, LiveTopology) else plan(side, _THERE)
    assert made.checksum != _CHECKSUM


def test_types_of_arguments_count() -> None:
    queues = [QueueDefinition("c", arguments={"k": value}) for value in (1, 1.0, True, "1")]
    sides = [replace(_WANTED, queues=(*_WANTED.queues[:2], queue)) for queue in queues]
    assert len({_CHECKSUM, *(plan(side, _THERE).checksum for side in sides)}) == 5


def test_what_others_declare_and_how_a_share_is_written_does_not_count() -> None:
    with_others = replace(_THERE, queues=(*_THERE.queues, QueueDefinition("reply.1")))
    assert plan(_WANTED, with_others).checksum == _CHECKSUM
    ring = '[[exchanges]]\nname = "h"\ntype = "x-consistent-hash"\nring = []\n'
    for place in ("", ring):
        one, same = (Topology.from_toml(f"{place}max_share_moved = {share}\n") for share in ("1", "1.0"))
        assert plan(one, LiveTopology()).checksum == plan(same, LiveTopology()).checksum
