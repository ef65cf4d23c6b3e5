"""A queue of a ring is replaced while messages come and consumers handle them: each message is handled."""

from __future__ import annotations

from collections import Counter

import pika
import pytest
from changed_site import ChangedSite
from queue_removal import removal_topology, replace_under_load

from rabbit_chx.errors import ApplyError

pytestmark = pytest.mark.broker

RING, SLOTS = "ring = [{}]", "slots = 6\nmembers = [{}]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "members", [RING, pytest.param(SLOTS, marks=pytest.mark.extended)], ids=["ring", "slots"]
)
@pytest.mark.timeout(700)
def test_a_queue_is_replaced_under_load(site: ChangedSite, members: str) -> None:
    load, handled = replace_under_load(site, members)
    assert load.returned == 0
    assert Counter(body.split()[0] for body in handled) == load.sent


@pytest.mark.slow
@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_a_replaced_queue_keeps_a_message_that_comes_after_the_check(site: ChangedSite, type_: str) -> None:
    before, after = (removal_topology(3, type_, "ring = [{}]", f"x-max-length = {most}") for most in (10, 20))
    site.apply(before)
    site.channel.confirm_delivery()

    def publish(done: int, _: int) -> None:
        if not done:  # the plan was checked, and nothing is changed yet
            site.channel.basic_publish("", "events.3", b"1", pika.BasicProperties(delivery_mode=2))

    with pytest.raises(ApplyError, match=r"events\.3"):
        site.apply(after, progress=publish)
    assert site.channel.queue_declare("events.3", passive=True).method.message_count == 1
    site.channel.queue_purge("events.3")
    site.apply(after)
    site.check_done(after)
