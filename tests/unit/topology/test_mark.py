"""The mark of a vhost as a value; what it proves of a record is in `records.txt`."""

from __future__ import annotations

from dataclasses import replace

from rabbit_chx import ExchangeRef
from rabbit_chx.topology.mark import Mark, Stamp, mark_arguments, stamp_in

HERE = Mark(Stamp("rabbit@one", "/", "m", "s"), 2)


def test_a_mark_that_is_made_again_keeps_its_identity_only_after_a_restart() -> None:
    """So records from before are those of the same broker, which has restarted since; after an import they are void."""
    restarted = replace(HERE, messages=1).renewed().stamp
    assert (restarted.identity, restarted.cluster, restarted.vhost) == ("m", "rabbit@one", "/")
    assert restarted.start != HERE.stamp.start
    for messages in (0, 3, None):
        assert replace(HERE, messages=messages).renewed().stamp.identity != "m"
    assert Mark(Stamp("rabbit@one", "/")).renewed().stamp.identity is not None


def test_a_stamp_has_what_the_mark_proves() -> None:
    assert HERE.stamp_now == HERE.stamp
    assert replace(HERE, messages=1).stamp_now == replace(HERE.stamp, start=None)
    for messages in (0, 3, None):
        assert replace(HERE, messages=messages).stamp_now == Stamp("rabbit@one", "/")
    assert stamp_in(mark_arguments(HERE.stamp), "rabbit@one", "/") == HERE.stamp
    assert stamp_in({}, None, "/") == Stamp(None, "/")


def test_a_member_that_the_broker_deletes_is_named_before_other_queues() -> None:
    mark = replace(HERE, transient=frozenset({"r", "t", ExchangeRef("f")}))
    assert [mark.passing(places) for places in (["a"], ["t"], [ExchangeRef("f")])] == [
        "queue r",
        "queue t",
        str(ExchangeRef("f")),
    ]
    assert replace(HERE, transient=frozenset({ExchangeRef("f")})).passing(["a"]) == ""
