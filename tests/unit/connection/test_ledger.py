"""The ledger against a simple model, and the broker's rules one by one."""

from __future__ import annotations

from itertools import chain, combinations
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


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_multiple_answer_covers_what_single_acks_left(verb: str) -> None:
    """Few or many of them ahead of it, up to its tag or beyond: all cases of seven messages."""
    tags = range(1, 8)
    for singles in chain.from_iterable(combinations(tags, n) for n in range(len(tags) + 1)):
        for through in tags:
            ledger = published(len(tags))
            for tag in singles:
                ledger.ack(tag, multiple=False)
            getattr(ledger, verb)(through, multiple=True)
            covered = set(range(1, through + 1)) - set(singles)
            nacked = len(covered) if verb == "nack" else 0
            still_open = [tag for tag in tags if tag > through and tag not in singles]
            assert counts(ledger) == (len(tags) - len(still_open) - nacked, nacked, len(still_open))
            assert [place + 1 for _, places in ledger.find_unanswered() for place in places] == still_open


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
