"""What the encoder writes, read back by another implementation of AMQP (pamqp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import Publisher
from rabbit_chx.publishing.encoder import Encoder, Rows, as_bytes, exchange_name

PROPERTIES = commands.Basic.Properties(delivery_mode=2, content_type="text/plain")
FRAME_MAX = 4096


def encoder(exchange: str = "orders", *, mandatory: bool = True) -> Encoder:
    return Encoder(exchange.encode(), PROPERTIES.marshal(), mandatory=mandatory, frame_max=FRAME_MAX)


def rows_of(keys: Sequence[Any], bodies: Sequence[Any]) -> Rows:
    return Rows(as_bytes(keys, "routing key", 0, 255), as_bytes(bodies, "body", 0))


def decode(wire: bytes) -> list[tuple[commands.Basic.Publish, header.ContentHeader, bytes]]:
    """The messages of the wire, by pamqp."""
    messages = []
    at = 0
    while at < len(wire):
        frames = []
        left: int | None = None
        while left != 0:
            used, channel, part = frame.unmarshal(wire[at:])
            assert used <= FRAME_MAX
            assert channel == 1
            at += used
            frames.append(part)
            if isinstance(part, header.ContentHeader):
                left = part.body_size
            elif isinstance(part, body.ContentBody):
                assert left is not None
                left -= len(part.value)
        publish, head, *bodies = frames
        assert isinstance(publish, commands.Basic.Publish)
        assert isinstance(head, header.ContentHeader)
        messages.append(
            (publish, head, b"".join(part.value for part in bodies if isinstance(part, body.ContentBody)))
        )
    return messages


keys = st.binary(max_size=255).filter(lambda key: key.isascii())  # pamqp reads keys as UTF-8
sizes = st.sampled_from([0, 1, 100, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])


@given(rows=st.lists(st.tuples(keys, sizes), max_size=6), mandatory=st.booleans())
def test_what_is_written_is_read_back(rows: list[tuple[bytes, int]], mandatory: bool) -> None:  # noqa: FBT001
    bodies = [bytes([i % 251]) * size for i, (_, size) in enumerate(rows)]
    wire = encoder(mandatory=mandatory).encode(rows_of([key for key, _ in rows], bodies))
    decoded = decode(wire)
    assert [message for _, _, message in decoded] == bodies
    for (publish, head, _), (key, _) in zip(decoded, rows, strict=True):
        assert publish.exchange == "orders"
        assert publish.routing_key == key.decode()
        assert publish.mandatory is mandatory
        assert head.properties.delivery_mode == 2
        assert head.properties.content_type == "text/plain"


def test_text_is_its_utf8_bytes_also_where_it_is_mixed_with_bytes() -> None:
    wire = encoder("é").encode(rows_of(["ключ", b"k"], ["тело", b"\xff"]))
    (first, _, text), (second, _, raw) = decode(wire)
    assert (first.exchange, first.routing_key, text.decode()) == ("é", "ключ", "тело")
    assert (second.routing_key, raw) == ("k", b"\xff")


def test_an_exchange_or_url_that_cannot_be() -> None:
    with pytest.raises(InputError, match="has 256 bytes: AMQP carries at most 255"):
        exchange_name("x" * 256)
    with pytest.raises(InputError, match="half of a surrogate pair"):
        exchange_name("\ud800")
    missing: Any = None
    with pytest.raises(InputError, match="the exchange is None: give its name as a str"):
        exchange_name(missing)
    with pytest.raises(InputError, match="url is of type NoneType: give an AMQP URI"):
        Publisher(missing, "x")


def test_more_body_lengths_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rabbit_chx.publishing.encoder._KEPT_LENGTHS", 3)
    writer = encoder()
    bodies = [b"x" * size for size in (*range(10), *range(10))]
    assert [message for _, _, message in decode(writer.encode(rows_of(["k"] * 20, bodies)))] == bodies
