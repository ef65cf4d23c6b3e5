"""The ledger against a simple model, and what else it tells."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.connection.session import Ledger


def test_a_refusal_is_news_however_many_messages_are_open() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.enter(3, 0, "batch")
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
    ledger: Ledger[int] = Ledger()  # a batch is called by its first tag, and has a byte for each message
    state: dict[int, str] = {}
    for messages in batches:
        ledger.enter(messages, messages, len(state) + 1)
        state |= dict.fromkeys(range(len(state) + 1, len(state) + messages + 1), "open")
    for verb, tag, multiple in answers:
        if tag > ledger.sent:
            with pytest.raises(ValueError, match=f"tag {tag}, but only {ledger.sent} were published"):
                getattr(ledger, verb)(tag, multiple=multiple)
        elif tag or multiple:
            getattr(ledger, verb)(tag, multiple=multiple)
            for covered in (
                range(1, (tag or ledger.sent) + 1) if multiple else (tag,)
            ):  # AMQP: tag 0 means all
                if state[covered] == "open":
                    state[covered] = verb
    values = list(state.values())
    assert (ledger.acked, ledger.nacked, ledger.open) == tuple(map(values.count, ("ack", "nack", "open")))
    oldest = next((tag for tag, value in state.items() if value == "open"), len(state) + 1)
    answered = [size for last, size in zip(accumulate(batches), batches, strict=True) if last < oldest]
    assert ledger.open_bytes == ledger.sent - sum(answered), (
        "the bytes of the oldest open batch and all after it"
    )
    for parts, verb in ((ledger.find_unanswered(), "open"), (ledger.take_refused(), "nack")):
        tags = [first + place for first, places in parts for place in places]
        assert sorted(tags) == [tag for tag, value in state.items() if value == verb]
        assert verb == "nack" or tags == sorted(tags)
    assert ledger.take_refused() == []
