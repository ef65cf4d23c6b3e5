"""What happens to the journal of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from delivery_checker import Verdict
from fire_group import GroupFire, group_fire, keep

from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", restartable=True), pytest.mark.timeout(600)]


WATCHED_S = 15.0


@pytest.fixture
def group(vhost: RunningBroker, tmp_path: Path) -> Iterator[GroupFire]:
    """The store does not refuse anything: the generations begin at 0 again."""
    with group_fire(vhost, tmp_path, fenced=False) as stage_:
        yield stage_


def test_a_deleted_journal_loses_nothing(group: GroupFire, record: Callable[..., Verdict]) -> None:
    def delete() -> None:
        with group.site.channel() as channel:
            channel.queue_delete(JOURNAL)
        time.sleep(WATCHED_S)

    keep(
        group,
        group.run(delete, burst=6_000),
        record,
        path="ConsumerGroup",
        fault="the journal deleted",
        promise="The members make another one. No member ends. Every message is handled, each queue in order; what members held may be "
        "handled again. The generations begin at 0 again.",
    )
