"""The ledger against a simple model, and what else it tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.connection.ledger import Ledger, Part


def published(messages: int, size: int = 0) -> Ledger[str]:
    ledger: Ledger[str] = Ledger()
    ledger.enter(messages, size, "batch")
    return ledger


def counts(ledger: Ledger[Any]) -> tuple[int, int, int]:
    return ledger.acked, ledger.nacked, ledger.open


@pytest.mark.parametrize("multiple", [False, True])
def test_a_tag_that_was_never_published_is_an_error(multiple: bool) -> None:  # noqa: FBT001
    with pytest.raises(ValueError, match="tag 4, but only 3 were published"):
        published(3).ack(4, multiple=multiple)


def test_bytes_are_open_until_the_whole_batch_is_answered() -> None:
    ledger: Ledger[None] = Ledger()
    ledger.enter(2, 100, None)
    ledger.enter(3, 50, None)
    ledger.ack(5, multiple=False)
    ledger.ack(1, multiple=False)
    assert ledger.open_bytes == 150
    ledger.ack(2, multiple=False)
    assert ledger.open_bytes == 50
    ledger.ack(0, multiple=True)
    assert ledger.open_bytes == 0


def test_refused_messages_are_taken_once() -> None:
    ledger = published(3)
    ledger.nack(2, multiple=False)
    ledger.nack(3, multiple=False)
    assert ledger.take_refused() == [Part("batch", [1, 2])]
    assert ledger.take_refused() == []


def test_a_refusal_is_news_however_many_messages_are_open() -> None:
    ledger = published(3)
    assert not ledger.has_news(until_open=2)
    ledger.ack(1, multiple=False)
    assert ledger.has_news(until_open=2)
    assert not ledger.has_news(until_open=1)
    ledger.nack(2, multiple=False)
    assert ledger.has_news(until_open=-1)


answers = st.lists(
    st.tuples(st.sampled_from(["ack", "nack"]), st.integers(0, 60), st.booleans()), max_size=80
)


@given(batches=st.lists(st.integers(1, 20), min_size=3, max_size=6), answers=answers)
def test_it_agrees_with_a_dictionary_of_every_tag(
    batches: list[int], answers: list[tuple[str, int, bool]]
) -> None:
    ledger: Ledger[int] = Ledger()  # a batch is called by its first tag
    state: dict[int, str] = {}
    for messages in batches:
        ledger.enter(messages, messages, len(state) + 1)
        state |= dict.fromkeys(range(len(state) + 1, len(state) + messages + 1), "open")
    for verb, tag, multiple in answers:
        if tag > ledger.sent or not (tag or multiple):
            continue
        getattr(ledger, verb)(tag, multiple=multiple)
        for covered in range(1, (tag or ledger.sent) + 1) if multiple else (tag,):  # AMQP: tag 0 means all
            if state[covered] == "open":
                state[covered] = verb
    values = list(state.values())
    assert counts(ledger) == (values.count("ack"), values.count("nack"), values.count("open"))
    assert ledger.open_bytes >= ledger.open
    for parts, verb in ((ledger.find_unanswered(), "open"), (ledger.refused, "nack")):
        tags = [first + place for first, places in parts for place in places]
        assert sorted(tags) == [tag for tag, value in state.items() if value == verb]
        assert verb == "nack" or tags == sorted(tags)
