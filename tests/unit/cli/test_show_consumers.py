"""`show --consumers`: what is added up, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Ran
from sides import as_live

from rabbit_chx.cli import show
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.consuming.stream_connection import find_streams
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.streams.frames import Code, StreamMetadata
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember
from rabbit_chx.topology.model import Consumer, Usage

UNKNOWN = "The last switch is not known"


Shown = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> Shown:
    """Return the JSON and the table of `show x --consumers` for queues and the claims of a journal."""

    def run(*queues: str, claimed: str = "q1") -> tuple[dict[str, Any], str]:
        members = (RingMember("q1"), RingMember("q2"))
        orders = ExchangeDefinition("x", "x-consistent-hash", ring=members)
        ring = HashRing.from_bindings([member.binding for member in members], Release("4.3.6"))
        consumers = {"q1": [Consumer("rabbit-chx.group.pod-7.a1b2", active=True)]}
        live = as_live(
            LiveTopology((orders,), tuple(map(QueueDefinition, queues)), release=ring.release).with_rings(
                {"x": ring}
            ),
            usage=Usage(consumers=consumers),
            messages=dict.fromkeys(queues, 0),
        )
        roster = SimpleNamespace(claims={claimed: SimpleNamespace(at=1.0)}, members={})
        opened = nullcontext(SimpleNamespace(topology=lambda: live))
        monkeypatch.setattr(BrokerAddresses, "open", lambda *_: opened)
        monkeypatch.setattr(show, "_read_connections", lambda *_: {})
        monkeypatch.setattr(show, "_roster", lambda *_: (roster, 0))
        address = ("--url", "amqp://h", "--management-url", "http://guest:guest@h:15672")
        command = ("show", "x", "--consumers", *address)
        return json.loads(ran(*command, "--output", "json")[1]), ran(*command)[1]

    return run


def test_without_a_parking_queue_the_parked_messages_are_unknown(shown: Shown) -> None:
    assert shown("q1")[0]["parked"] is None
    assert shown("q1", "x.park")[0]["parked"] == 0


def test_a_journal_that_names_other_queues_only_tells_no_switch(shown: Shown) -> None:
    document, table = shown("q1", claimed="other")
    assert (document["queues"][0]["last_switch"], UNKNOWN in table) == (None, True)
    document, table = shown("q1")
    switched = "1970-01-01T00:00:01.000+00:00"
    assert (document["queues"][0]["last_switch"], UNKNOWN in table) == (switched, False)


def test_a_broker_that_nobody_answers_for_exits_with_69(ran: Ran) -> None:
    at = ("--url", "rabbitmq-stream://127.0.0.1:1", "--management-url", "", "--wait", "0.1")
    code, _, errors = ran("show", "s", "--consumers", "--stream-group", "g", *at)
    assert (code, "no server answers there" in errors, "(after --wait 0.1)" in errors) == (69, True, True)


def test_a_stream_that_the_user_may_not_read_is_an_error() -> None:
    """The broker leaves out the error where missing streams are allowed."""
    forbidden = StreamMetadata(None, (), Code.ACCESS_REFUSED)

    def metadata(names: Sequence[str], *, missing_ok: bool = False) -> dict[str, StreamMetadata]:
        if not missing_ok:
            raise BrokerRefusedError("the user may not read it")
        return dict.fromkeys(names, forbidden)

    connection: Any = SimpleNamespace(metadata=metadata)
    with pytest.raises(BrokerRefusedError, match="may not read"):
        find_streams(connection, ["s0"])
