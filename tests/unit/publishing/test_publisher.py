"""The blocking publisher and Ctrl-C. The interruption is scripted, so that it comes where it is to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from amqp_broker import Answer, ack, hang_up, nothing
from scripted_peer import Peer

from rabbit_chx.connection.blocking_connection import Transport
from rabbit_chx.errors import PublishError
from rabbit_chx.publishing import Publisher
from rabbit_chx.publishing.encoder import Encoder


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A broker that answers nothing, unless told otherwise."""
    with Peer(nothing) as peer:
        yield peer


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def while_it_encodes(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Encoder, "encode", interrupt)


def while_it_waits_for_answers(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Transport, "receive", interrupt)


def while_it_waits_to_reconnect(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(time, "sleep", interrupt)


@pytest.mark.parametrize(
    ("interrupted", "answer", "rows"),
    [
        (while_it_encodes, nothing, 1),
        (while_it_waits_for_answers, nothing, 2),
        (while_it_waits_to_reconnect, hang_up, 2),
    ],
)
def test_after_ctrl_c_nothing_is_sent_any_more(
    peer: Peer,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: Callable[[pytest.MonkeyPatch], None],
    answer: Answer,
    rows: int,
) -> None:
    with Publisher(peer.settings, "orders", max_reconnects=1) as ours:
        ours.send(["k"], ["before"])
        peer.until(lambda: len(peer.messages) == 1)
        peer.answer = answer
        with monkeypatch.context() as patched:
            interrupted(patched)
            with pytest.raises(KeyboardInterrupt):
                ours.publish_many(["k"], ["interrupted"])
        peer.answer = ack
        with pytest.raises(
            PublishError, match=r"given up after an interruption \(KeyboardInterrupt\)"
        ) as caught:
            ours.publish_many(["k"], ["after"])
        report = caught.value.report
        assert (report.rows, report.confirmed, report.unknown) == (rows, 0, rows)
    assert "after" not in peer.bodies
    assert peer.connections == 1
