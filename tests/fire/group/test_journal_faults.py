"""What happens to the journal of a group."""

from __future__ import annotations

import time

import pytest
from delivery_checker import Judge
from fire_group import GroupFire

from rabbit_chx.consuming.journal import JOURNAL

pytestmark = [
    pytest.mark.broker,
    pytest.mark.own_broker,
    pytest.mark.timeout(600),
]


#: The store does not refuse anything: the generations begin at 0 again.
GROUP = {"fenced": False}
WATCHED_S = 15.0


def test_a_deleted_journal_loses_nothing(group: GroupFire, kept: Judge) -> None:
    def delete() -> None:
        with group.site.channel() as channel:
            channel.queue_delete(JOURNAL)
        time.sleep(WATCHED_S)

    kept(
        group.run(delete, burst=6_000),
        fault="the journal deleted",
        promise="The members make another one. No member ends. Every message is handled, each queue in order; what members held may be "
        "handled again. The generations begin at 0 again.",
    )
