"""`show --consumers`: what is added up, what is not known, and data of the management API that is old."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Ran

from rabbit_chx.broker.publish_rates import PublishRates
from rabbit_chx.cli import show_consumers
from rabbit_chx.consuming.stream_status import find_streams
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.streams.frames import Code, StreamMetadata

UNKNOWN = "The last switch is not known"


Shown = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> Shown:
    """Return the JSON and the table of `show x --consumers` for queues and the claims of a journal."""

    def show(
        *queues: str, claimed: str = "q1", per_second: tuple[float, float] = (0.0, 0.0)
    ) -> tuple[dict[str, Any], str]:
        consumer = {"queue": {"name": "q1"}, "consumer_tag": "rabbit-chx.group.pod-7.a1b2"}
        answers = {
            "queues": [{"name": name, "type": "classic", "messages_ready": 0} for name in queues],
            "consumers": [{**consumer, "active": True, "channel_details": {}}],
            "vhosts": [],
        }
        requested = SimpleNamespace(
            request=lambda _method, first, *_, **__: answers[first],
            get_list=lambda first, *_, **__: answers[first],
        )
        roster = SimpleNamespace(claims={claimed: SimpleNamespace(at=1.0)}, members={})
        ring = HashRing.from_bindings([("q1", 1), ("q2", 1)], Release("4.3.6"))
        live = SimpleNamespace(release=ring.release, key_map=lambda: ring)
        monkeypatch.setattr(show_consumers, "_names", lambda *_: (["q1"], live))
        rates = PublishRates(10.0, dict(zip(("q1", "q2"), per_second, strict=True)))
        monkeypatch.setattr(show_consumers, "read_rates", lambda *_: {"x": rates})
        monkeypatch.setattr(show_consumers, "_read_once", lambda *_: real(requested, "/", ["q1"]))
        monkeypatch.setattr(show_consumers, "_roster", lambda *_: (roster, 0))
        address = ("--url", "amqp://h", "--management-url", "http://guest:guest@h:15672")
        command = ("show", "x", "--consumers", *address)
        return json.loads(ran(*command, "--output", "json")[1]), ran(*command)[1]

    real: Any = show_consumers._read_once
    return show


def test_without_a_parking_queue_the_parked_messages_are_unknown(shown: Shown) -> None:
    assert shown("q1")[0]["parked"] is None
    assert shown("q1", "x.park")[0]["parked"] == 0


@pytest.mark.parametrize(
    ("per_second", "found"),
    [((9.0, 1.0), "q1"), ((1.0, 9.0), "q2"), ((5.2, 4.8), None), ((0.05, 0.0), None), ((0.0, 0.0), None)],
)
def test_a_queue_with_more_than_its_share_has_a_warning_that_names_the_way_to_the_cause(
    shown: Shown, per_second: tuple[float, float], found: str | None
) -> None:
    """Of some messages a minute chance gives one queue more."""
    warnings = [
        each for each in shown("q1", per_second=per_second)[0]["findings"] if "traffic" in each["kind"]
    ]
    assert [each["queues"] for each in warnings] == ([[found]] if found else [])
    for each in warnings:
        assert each["message"].startswith(f"{found} got 90.0% of the messages of the last minute, and has ")
        assert "rabbit-chx verify x --trace 60 --url amqp://h" in each["fix"]


def test_a_journal_that_names_other_queues_only_tells_no_switch(shown: Shown) -> None:
    document, table = shown("q1", claimed="other")
    assert (document["queues"][0]["last_switch"], UNKNOWN in table) == (None, True)
    document, table = shown("q1")
    switched = "1970-01-01T00:00:01.000+00:00"
    assert (document["queues"][0]["last_switch"], UNKNOWN in table) == (switched, False)


@pytest.mark.parametrize("answers", [1, 3, 50])
def test_data_without_an_active_consumer_are_read_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(show_consumers, "time", clock)
    reads = iter(range(1, 1_000))

    def read(*_: object) -> tuple[int, Any]:
        number = next(reads)
        return number, SimpleNamespace(nobody_active=number < answers)

    monkeypatch.setattr(show_consumers, "_read_once", read)
    management: Any = None
    found: tuple[Any, Any] = show_consumers._read(management, "/", ["q1"])
    longest = show_consumers._STALE_S / show_consumers._POLL_S
    assert found[0] == answers if answers < longest else abs(found[0] - longest - 1) <= 1
    assert found[1].nobody_active == (answers > longest)
    assert now[0] <= show_consumers._STALE_S + show_consumers._POLL_S


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
