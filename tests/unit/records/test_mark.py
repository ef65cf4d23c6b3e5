"""The mark of a vhost as a value; what it proves of a record is in `records.txt`."""

from __future__ import annotations

from dataclasses import replace

from rabbit_chx.records.ring_records import RecordedStart, RestartMark, mark_arguments, stamp_in
from rabbit_chx.topology.objects import MARK

HERE = RestartMark(RecordedStart("rabbit@one", "/", "m", "s"), 2)


def test_a_mark_that_is_made_again_keeps_its_identity_only_after_a_restart() -> None:
    """So records from before are those of the same broker, which has restarted since; after an import they are void."""
    restarted = replace(HERE, messages=1).renewed()
    assert (restarted.identity, restarted.cluster, restarted.vhost) == ("m", "rabbit@one", "/")
    assert restarted.start != HERE.recorded_start.start
    for messages in (0, 3, None):
        assert replace(HERE, messages=messages).renewed().identity != "m"
    assert RestartMark(RecordedStart("rabbit@one", "/")).renewed().identity is not None


def test_a_stamp_has_what_the_mark_proves() -> None:
    assert HERE.stamp_now == HERE.recorded_start
    assert replace(HERE, messages=1).stamp_now == replace(HERE.recorded_start, start=None)
    for messages in (0, 3, None):
        assert replace(HERE, messages=messages).stamp_now == RecordedStart("rabbit@one", "/")
    assert stamp_in(mark_arguments(HERE.recorded_start), "rabbit@one", "/") == HERE.recorded_start
    assert stamp_in({}, None, "/") == RecordedStart(None, "/")


def test_two_persistent_messages_are_those_of_others() -> None:
    """One of the own messages is transient. Statistics may be older than both messages."""
    assert [replace(HERE, persistent=count).holds for count in (None, 0, 1, 2)] == [True, True, True, False]
    assert replace(HERE, persistent=2).renewed().identity != "m"


def test_queues_on_other_nodes_are_strangers() -> None:
    nodes = {MARK: {"n1"}, "a": {"n1"}, "b": {"n2"}, "c": {"n1", "n2"}}
    mark = replace(HERE, nodes={name: frozenset(of) for name, of in nodes.items()})
    assert mark.queues_on_other_nodes(["d", *nodes]) == ["b", "c", "d"]
    assert replace(mark, nodes={**mark.nodes, MARK: frozenset()}).queues_on_other_nodes(["a"]) == ["a"]
