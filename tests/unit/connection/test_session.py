"""The session in bytes: the broker's side is scripted, for faults that a real broker does not have on demand."""

from __future__ import annotations

from typing import Any

import pytest
from broker_frames import CHANNEL, HANDSHAKE, said
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.connection.session import Phase, Session
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, ConnectionLostError, NotFoundError

SETTINGS = ConnectionSettings(username="u", password=Secret("hush"), heartbeat_s=30)


def sent(session: Session) -> list[Any]:
    """What the session has queued, decoded; takes it out of the queue."""
    wire = b"".join(session.output)
    session.output.clear()
    methods = []
    while wire:
        used, _, method = frame.unmarshal(wire)
        methods.append(method)
        wire = wire[used:]
    return methods


def ready(settings: ConnectionSettings = SETTINGS) -> Session:
    session = Session(settings)
    session.receive(b"".join(HANDSHAKE))
    assert session.phase is Phase.READY
    session.output.clear()
    return session


def test_the_handshake_answers_each_method_of_the_broker() -> None:
    session = Session(SETTINGS)
    session.receive(b"".join(HANDSHAKE))
    hello, start, tune, opening, channel, confirm = sent(session)
    assert isinstance(hello, header.ProtocolHeader)
    assert (start.name, start.mechanism, start.response) == ("Connection.StartOk", "PLAIN", "\0u\0hush")
    assert start.client_properties["capabilities"] == {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,  # else the broker never says that it blocks us
        "publisher_confirms": True,
    }
    assert (tune.name, tune.frame_max, tune.heartbeat) == ("Connection.TuneOk", 131_072, 30)
    assert (opening.name, opening.virtual_host) == ("Connection.Open", "/")
    assert [method.name for method in (channel, confirm)] == ["Channel.Open", "Confirm.Select"]
    assert session.server["version"] == "4.3.6"


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"), [(None, 60, 60), (30, 60, 30), (90, 60, 60), (30, 0, 30), (0, 60, 0)]
)
@pytest.mark.parametrize(
    ("our_frame", "their_frame", "frame_max"),
    [
        *((None, theirs, 131_072) for theirs in (0, 131_072, 1 << 20)),
        *((ours, 8192, 8192) for ours in (None, 1 << 20)),
        *((8192, theirs, 8192) for theirs in (0, 131_072)),
        (1 << 20, 1 << 20, 131_072),
    ],
)
def test_the_heartbeat_and_the_largest_frame_are_negotiated(
    *, ours: int | None, theirs: int, agreed: int, our_frame: int | None, their_frame: int, frame_max: int
) -> None:
    """The smallest of three bounds of a frame, where 0 is none: the URL's, the broker's and our own of 131,072 bytes."""
    session = Session(ConnectionSettings(heartbeat_s=ours, frame_max=our_frame))
    session.receive(said(commands.Connection.Start(mechanisms="PLAIN"), 0))
    session.receive(said(commands.Connection.Tune(0, their_frame, theirs), 0))
    tune = sent(session)[2]
    assert (session.heartbeat_s, session.frame_max) == (agreed, frame_max)
    assert (tune.heartbeat, tune.frame_max) == (agreed, frame_max)
    # Without heartbeats silence is not a loss; otherwise two that are missing are one.
    assert session.longest_silence_s == 2 * agreed if agreed else session.longest_silence_s > 1_000_000


def test_without_a_common_mechanism_access_is_refused() -> None:
    session = Session(ConnectionSettings(auth_mechanisms=("EXTERNAL",)))
    session.receive(said(commands.Connection.Start(mechanisms="PLAIN AMQPLAIN"), 0))
    assert isinstance(session.failure, AccessRefusedError)
    assert "offers the auth mechanisms PLAIN, AMQPLAIN, not EXTERNAL" in str(session.failure)
    session = Session(SETTINGS)
    session.receive(said(commands.Connection.Start(mechanisms="PLAIN"), 0))
    session.receive(said(commands.Connection.Close(403, "ACCESS_REFUSED", 0, 0), 0))
    assert "u:***@localhost" in str(session.failure)
    assert "hush" not in str(session.failure)


@given(
    answers=st.lists(
        st.tuples(
            st.sampled_from([commands.Basic.Ack, commands.Basic.Nack]), st.integers(1, 40), st.booleans()
        ),
        max_size=30,
    )
)
def test_a_run_of_answers_counts_as_each_of_them_after_the_other(
    answers: list[tuple[type[commands.Basic.Ack | commands.Basic.Nack], int, bool]],
) -> None:
    wires = [said(answer(tag, multiple)) for answer, tag, multiple in answers]
    at_once, one_by_one = ready(), ready()
    for session in (at_once, one_by_one):
        session.publish(b"wire", 25)
        session.publish(b"more", 15)
    at_once.receive(b"".join(wires))
    for wire in wires:
        one_by_one.receive(wire)
    assert at_once.failure is None
    assert at_once.ledger.find_unanswered() == one_by_one.ledger.find_unanswered()
    assert at_once.ledger.refused == one_by_one.ledger.refused
    assert at_once.ledger.acked == one_by_one.ledger.acked


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("kind", [commands.Basic.Ack, commands.Basic.Nack])
def test_only_our_channel_answers_for_our_messages(kind: Any, multiple: bool) -> None:  # noqa: FBT001
    answer, session = kind(2, multiple), ready()
    session.publish(b"wire", 3)
    session.receive(said(answer, CHANNEL + 1))
    assert (session.ledger.answered, session.ledger.open, session.ledger.refused) == (0, 3, [])
    session.receive(said(answer))
    assert session.ledger.answered > 0


@pytest.mark.parametrize(
    ("size", "accepted"), [(0, True), (512 << 20, True), (1 + (512 << 20), False), (1 << 40, False)]
)
def test_a_returned_message_is_not_larger_than_a_broker_accepts(size: int, *, accepted: bool) -> None:
    """Its key may hold any bytes."""
    session = ready()
    session.on_returned = lambda *_: None
    content = frame.marshal(header.ContentHeader(0, size, commands.Basic.Properties()), CHANNEL)
    returned = said(commands.Basic.Return(312, "NO_ROUTE", "orders", "k"))
    session.receive(returned.replace(b"\x01k", b"\x01\xff") + content)
    assert session.samples[0].key == b"\xff"
    assert (session.failure is None) is accepted
    if not accepted:
        assert f"it returns a message of {size:,} bytes" in str(session.failure)


def test_channel_flow_and_a_closed_channel_are_answered() -> None:
    session = ready()
    session.receive(
        said(commands.Channel.Flow(active=False)) + said(commands.Channel.Close(404, "NO - good", 60, 40))
    )
    flow, close = sent(session)
    assert isinstance(flow, commands.Channel.FlowOk)
    assert flow.active is False
    assert isinstance(close, commands.Channel.CloseOk)
    assert type(session.failure) is NotFoundError
    assert session.failure.reply_code == 404
    assert "404 NO - good" in str(session.failure)


def test_confirms_before_a_close_in_the_same_bytes_count() -> None:
    session = ready()
    session.publish(b"wire", 3)
    session.receive(
        said(commands.Basic.Ack(2, multiple=True)) + said(commands.Connection.Close(320, "FORCED", 0, 0), 0)
    )
    assert isinstance(session.failure, ConnectionLostError)
    assert (session.ledger.acked, session.ledger.open) == (2, 1)


NONSENSE = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no end mark": b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x50X",
    "a tag never sent": said(commands.Basic.Ack(9)),
    "another version": b"AMQP\x00\x01\x00\x00",
    "an unknown method": b"\x01\x00\x00\x00\x00\x00\x04\x00\xff\x00\xff\xce",
    "a return that breaks off": b"\x01\x00\x01\x00\x00\x00\x07\x00\x3c\x00\x32\x01\x38\xff\xce",
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_what_cannot_be_understood_ends_the_connection(nonsense: bytes) -> None:
    session = ready()
    session.receive(nonsense)
    assert isinstance(session.failure, ConnectionLostError)
    assert ("another protocol version, 00.01.00.00" in str(session.failure)) is nonsense.startswith(b"AMQP")


def test_a_new_token_that_the_broker_refuses_is_a_lost_connection() -> None:
    """The next login asks for another token. Without a renewal under way the same code is final."""
    refusal = said(commands.Connection.Close(530, "NOT_ALLOWED - New secret was refused", 0, 0), 0)
    session = ready()
    session.update_secret(Secret("hush"))  # the broker has it
    assert not sent(session)
    session.update_secret(Secret("new"))
    (update,) = sent(session)
    assert (update.name, bytes(update.new_secret, "utf-8")) == ("Connection.UpdateSecret", b"new")
    session.receive(refusal)
    assert type(session.failure) is ConnectionLostError
    assert "the broker refuses the new token (NOT_ALLOWED - New secret was refused)" in str(session.failure)
    session = ready()
    session.update_secret(Secret("new"))
    session.receive(said(commands.Connection.UpdateSecretOk(), 0) + refusal)
    assert type(session.failure) is BrokerRefusedError
