"""Slots change hands under load, on every release: nothing is lost, nothing is doubled, and the park is empty."""

from __future__ import annotations

import pytest
from changed_site import changed_site
from numbered_load import numbered_load
from slot_files import slotted

from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker


def test_nothing_is_lost_or_doubled(rabbit: Rabbit) -> None:
    three, four = (slotted(12, f'[{{ queue = "events.{{1..{n}}}" }}]') for n in (3, 4))
    with changed_site(rabbit.broker) as site:
        site.apply(three)
        with numbered_load(site.broker.url, per_s=500) as load:
            done = site.apply(four)
        assert len(done.handed_over) == 3
        found = load.found(site.broker.url, [f"events.{n}" for n in range(1, 5)])
        assert load.returned == 0
        assert (len(found), found.total()) == (load.count, load.count)
        assert site.channel.queue_declare("events.park", passive=True).method.message_count == 0
    rabbit.note(
        f"{load.count:,} messages while 3 slots changed hands, {done.unparked} of them parked: lost 0, doubled 0"
    )
