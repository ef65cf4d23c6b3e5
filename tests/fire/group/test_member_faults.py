"""What happens to the members of a group and their lines."""

from __future__ import annotations

import pytest
from delivery_checker import Judge
from fire_group import GroupFire

pytestmark = [
    pytest.mark.broker,
    pytest.mark.own_broker,
    pytest.mark.timeout(600),
]

#: The broker closes connections that have sent nothing for this time, with a heartbeat of 10 s.
MISSED_S = 30.0


def test_others_take_over_from_a_frozen_member(group: GroupFire, kept: Judge) -> None:
    """When it goes on, it may still be in a handler of a queue that another member has: the store refuses that effect."""
    kept(
        group.run(group.freeze_member),
        fault="a member stopped (SIGSTOP) for 35 s, heartbeat 10 s",
        promise="Another member takes its queues when the broker misses its heartbeats. It does not end, and takes its share again. Every "
        "message is handled, each queue in order for a store that refuses lower generations; what it held may be handled again.",
    )


def test_others_take_over_from_a_member_that_is_cut_off(group: GroupFire, kept: Judge) -> None:
    kept(
        group.run_cut_off(3),
        fault="nothing comes through between all members and the broker for 60 s; then new connections do, and old ones never",
        promise="No member ends. Every message is handled, each queue in order; what members held may be handled again.",
    )


def test_others_take_over_from_a_member_whose_handler_blocks_the_event_loop(
    group: GroupFire, kept: Judge
) -> None:
    kept(
        group.run(group.block_event_loop),
        fault="the event loop of a member blocked for 90 s",
        promise="Another member takes its queues when the broker misses its heartbeats. It does not end, and takes its "
        "share again. Every message is handled, each queue in order.",
        queue_pause_s=MISSED_S,
    )
