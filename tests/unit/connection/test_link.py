"""What session, loop and delivery share of a connection."""

from __future__ import annotations

from scripted_delivery import A, ScriptedLink

from rabbit_chx.connection.link import Part


def test_what_is_published_is_queued_and_open() -> None:
    link = ScriptedLink(A)
    link.publish(b"two messages", 2, "first")
    link.publish(b"one message", 1, "second")
    assert list(link.output) == [b"two messages", b"one message"]
    assert (link.sent, link.open, link.answered, link.open_bytes) == (3, 3, 0, 23)
    assert link.left() == [Part("first", [0, 1]), Part("second", [0])]


def test_refused_messages_are_taken_once() -> None:
    link = ScriptedLink(A)
    link.publish(b"messages", 3, "batch")
    link.nack(2, multiple=False)
    link.nack(3, multiple=False)
    assert link.take_refused() == [Part("batch", [1, 2])]
    assert link.take_refused() == []


def test_a_refusal_is_news_however_many_messages_are_open() -> None:
    link = ScriptedLink(A)
    link.publish(b"messages", 3)
    assert not link.has_news(until_open=2)
    link.ack(1, multiple=False)
    assert link.has_news(until_open=2)
    assert not link.has_news(until_open=1)
    link.nack(2, multiple=False)
    assert link.has_news(until_open=-1)
