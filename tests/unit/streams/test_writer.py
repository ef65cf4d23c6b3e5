"""StreamPublisher beside a scripted broker: one call after another, and what is given up."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
import stream_publishers as scripted
from stream_node import Session
from stream_publishers import ROWS, URL, Broker, once, publish, publish_rows, publisher

from rabbit_chx import errors
from rabbit_chx.amqp.settings import parse_stream_uri
from rabbit_chx.connection.failures import vhost_error
from rabbit_chx.streams import nodes, stored_ids, writer
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.rows import encode_rows


def test_ids_rise_from_call_to_call(broker: Broker) -> None:
    with publisher(name="load") as made:
        publish(made, rows=10)
        assert publish(made, first=11, rows=0).rows == 0
        with pytest.raises(errors.InputError, match="id 10 is published"):
            publish(made, first=10, rows=10)
        publish(made, first=20, rows=10)
    assert broker.rows["s"].ids == [*range(1, 11), *range(20, 30)]


def test_after_a_failed_call_its_rows_come_first(broker: Broker) -> None:
    broker.fault = once(scripted.lose, 60)
    with publisher(name="load", reconnect_timeout_s=0) as made:
        publish(made, rows=10)
        with pytest.raises(errors.PublishError, match="publish again from id 11 on") as raised:
            publish(made, first=11, rows=100)
        assert 0 == raised.value.report.confirmed < raised.value.report.unknown < 100
        assert publish(made, rows=0).rows == 0
        for first in (111, 12):
            with pytest.raises(errors.InputError, match=r"from id 11 on .* pass them again first"):
                publish(made, first=first, rows=10)
        publish(made, first=11, rows=60)  # a part of them
        with pytest.raises(errors.InputError, match="rows from id 71 on may be unconfirmed"):
            publish(made, first=111)
        publish(made, first=71, rows=130)
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))


def failing(monkeypatch: pytest.MonkeyPatch, attempts: Iterable[Exception]) -> Mock:
    """Let these attempts to connect fail with their errors; the next ones succeed."""
    opened = Mock(wraps=nodes.open_at, side_effect=chain(attempts, repeat(DEFAULT)))
    monkeypatch.setattr(writer, "open_at", opened)
    return opened


def test_confirms_that_come_with_a_change_of_the_leader_begin_another_outage(broker: Broker) -> None:
    def confirm_slowly_and_change(session: Session) -> None:
        """Each connection confirms its first rows, and then the leader changes."""
        if session.sent:
            broker.clock.now += 50
            scripted.confirm_and_change(session)

    broker.fault = confirm_slowly_and_change
    report = publish_rows(rows=40, reconnect_timeout_s=60)
    assert report.reconnects >= 3


def test_reading_back_does_not_count_as_waiting_for_a_confirm(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_rows(rows=100)
    seen = [0]

    def read_slowly(**how: Any) -> Any:
        broker.clock.now += 600
        return scripted.READER(**how)

    def confirm_later(connection: Session) -> None:
        if len(connection.sent) != seen[0]:
            seen[0] = len(connection.sent)
            connection.tell(scripted.NOTHING)

    monkeypatch.setattr(stored_ids, "StreamReader", read_slowly)
    broker.fault = confirm_later
    report = publish_rows()
    assert (report.known, report.reconnects) == (100, 0)


DOWN = errors.UnreachableError("nobody answers")


def test_each_call_has_the_full_time_to_reconnect(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one that gave up, and after one whose last confirms came with a change of the leader."""
    with publisher(name="load", reconnect_timeout_s=60) as made:
        broker.fault = once(scripted.confirm_and_change, 20)
        assert publish(made, rows=20).complete
        broker.writers[-1].lose()
        broker.clock.now += 3_600
        attempts = failing(monkeypatch, [DOWN] * 3)
        assert publish(made, first=21, rows=20).complete
        assert attempts.call_count == 3 + 1
        broker.writers[-1].lose()
        attempts = failing(monkeypatch, repeat(DOWN))
        for _ in range(2):
            began, before = broker.clock.now, attempts.call_count
            with pytest.raises(errors.PublishError, match="gave up after"):
                publish(made, first=41)
            assert 60 <= broker.clock.now - began < 70
            assert attempts.call_count - before > 3


@pytest.mark.usefixtures("broker")
def test_a_limit_of_connections_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker refuses the vhost then, and does not say why; the constructor has opened it."""
    attempts = failing(monkeypatch, [vhost_error(parse_stream_uri(URL), "code 12, vhost access failure")] * 3)
    assert publish_rows().complete
    assert attempts.call_count > 3


def test_a_last_attempt_that_ends_early_does_not_hide_the_limit(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes 3 s for a refusal, and the last attempt may have less."""
    limit = vhost_error(parse_stream_uri(URL), "code 12, vhost access failure")

    def failures() -> Iterator[Exception]:
        began = broker.clock.now
        while True:
            yield limit if broker.clock.now < began + 60 else DOWN

    failing(monkeypatch, failures())
    with (
        publisher(name="load", reconnect_timeout_s=60) as made,
        pytest.raises(errors.PublishError, match="limits of connections; gave up after") as raised,
    ):
        publish(made)
    cause = raised.value.__cause__
    assert cause is not None
    assert cause.__cause__ is limit


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("kind", [errors.AccessRefusedError, errors.NotFoundError, errors.InputError])
def test_a_permanent_error_is_raised_at_once(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    attempts = failing(monkeypatch, [kind("no")])
    with pytest.raises(errors.PublishError) as raised:
        publish_rows()
    assert isinstance(raised.value.__cause__, kind)
    assert attempts.call_count == 1


def test_requests_are_bounded_by_the_timeouts_of_the_publisher(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: dict[str, list[float]] = defaultdict(list)

    def recorded(name: str, result: Any = None) -> None:
        call = getattr(StreamConnection, name)

        def record(connection: StreamConnection, *how: Any, **more: Any) -> Any:
            times[name].append(connection.request_timeout_s)
            return call(connection, *how, **more) if result is None else result

        monkeypatch.setattr(StreamConnection, name, record)

    def open_at(*how: Any, **more: Any) -> StreamConnection:
        times["open"].append(more["timeout_s"])
        broker.clock.now += 3 if len(times["open"]) > 1 else 0
        return nodes.open_at(*how, **more)

    recorded("publisher_sequence", 0)
    recorded("metadata")
    monkeypatch.setattr(writer, "open_at", open_at)
    broker.fault = once(scripted.lose, 60)
    with pytest.raises(errors.PublishError, match="has confirmed id"):  # it claims nothing any more
        publish_rows(confirm_timeout_s=20, reconnect_timeout_s=8)
    assert times["metadata"][0] == times["publisher_sequence"][0] == 20
    assert 0 < times["open"][1] <= 8
    assert 0 < times["publisher_sequence"][1] <= 8


@pytest.mark.parametrize("how", [{"super_stream": "x"}, {"ring": scripted.RING, "exchange": "x"}])
def test_names_are_counted_in_each_stream(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    broker.add_partitions()
    check = Mock(side_effect=[None, None, errors.InputError("stream 'c' remembers too many names")])
    monkeypatch.setattr(publisher_module, "check_references", check)
    with pytest.raises(errors.InputError, match="stream 'c' remembers"):
        publisher(name="load", management_url="http://broker", **how)
    assert [call.args[2:] for call in check.call_args_list] == [("a", "load"), ("b", "load"), ("c", "load")]


@pytest.mark.parametrize(("limit", "value"), [("_BATCH_ROWS", 30), ("_BATCH_BYTES", 3_000)])
def test_a_call_encodes_its_rows_piece_by_piece(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    encode = Mock(wraps=encode_rows)
    monkeypatch.setattr(publisher_module, limit, value)
    columns = [f"{n:050}" for n in range(1, ROWS + 1)]  # 100 bytes of key and body, and some for Arrow
    with publisher(name="load") as made:
        monkeypatch.setattr(publisher_module, "encode_rows", encode)
        made.publish_many(columns, columns, ids=range(1, ROWS + 1))
    pieces = [len(call.args[0]) for call in encode.call_args_list]
    assert sum(pieces) == ROWS
    assert 20 <= max(pieces) <= 30
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))


def test_a_broker_that_confirms_nothing_is_given_up(broker: Broker) -> None:
    """The error shows no password."""
    broker.fault = lambda connection: connection.unconfirmed.clear()
    with publisher(name="load", confirm_timeout_s=0.5, reconnect_timeout_s=0) as made:
        with pytest.raises(errors.PublishError, match="has confirmed nothing") as raised:
            publish(made)
        assert "secret" not in f"{made!r} {raised.value} {vars(made)!r}"
    assert raised.value.report.confirmed == 0
    assert raised.value.__cause__ is not None
    assert isinstance(raised.value.__cause__.__cause__, errors.BrokerTimeoutError)


@pytest.mark.parametrize("place", ["keys", "bodies"])
@pytest.mark.parametrize("name", ["load", None])
def test_a_row_that_no_frame_can_carry_is_refused_before_any_is_sent(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, place: str, name: str | None
) -> None:
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", 10)
    columns = {"keys": ["k"] * ROWS, "bodies": ["b"] * ROWS}
    columns[place][150] = "x" * scripted.FRAME_MAX
    with (
        publisher(name=name) as made,
        pytest.raises(errors.RowError, match=r"^row 150 .* frame of this broker, which has 4096"),
    ):
        made.publish_many(**columns, ids=range(1, ROWS + 1) if name else None)
    assert not broker.rows["s"].log


@pytest.mark.parametrize(
    ("how", "overhead", "filter_sizes"),
    [
        ({}, 140, [0]),
        ({"name": "load"}, 140, [0]),
        ({"exchange": "orders"}, 140, [0]),
        ({"name": "load", "exchange": "orders"}, 140, [0]),
        ({"name": "load"}, 200, [1, 200, 255, 256, 1_000]),
        ({"sub_entry_rows": 9}, 300, [0]),
    ],
)
def test_the_largest_rows_that_are_taken_can_be_sent(
    broker: Broker, how: dict[str, Any], overhead: int, filter_sizes: list[int]
) -> None:
    broker.commands = (*broker.commands, Key.PUBLISH)
    values = [b"v" * size or None for size in filter_sizes]
    for value in values:
        largest = scripted.FRAME_MAX - 2 * len(value or b"")
        with publisher(**how) as made:
            for size in range(largest, 0, -1):
                more: dict[str, Any] = {"ids": [2**63 - 1 - size]} if "name" in how else {}
                more |= {"filter_values": [value]} if value else {}
                with contextlib.suppress(errors.RowError):
                    made.publish_many([b"k" * 300], [b"b" * (size - 300)], **more)
                    break
        assert size > largest - overhead
    assert broker.rows["s"].batch(0, 10)["filter_value"].to_pylist() == values


def test_rows_whose_connection_was_lost_may_be_stored_whatever_the_next_one_says(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.fault = once(scripted.lose, 60)
    deleted = errors.NotFoundError("the stream is deleted", queue="s")
    failing(monkeypatch, [DEFAULT, deleted])
    with publisher(name="load") as made, pytest.raises(errors.PublishError) as raised:
        publish(made)
    error, report = raised.value, raised.value.report
    assert isinstance(error.__cause__, errors.UnknownOutcomeError)
    assert error.__cause__.__cause__ is deleted
    assert report.unknown > 0
    assert report.confirmed + report.unknown <= report.rows
    assert f"{report.unknown} unknown" in str(report)
