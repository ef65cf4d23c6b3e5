"""The broker's reply codes and words, as errors: whose fault, and whether time cures it."""

from __future__ import annotations

import pytest
from stored_cases import stored_cases

from rabbit_chx.amqp.frames import error_for, is_transient
from rabbit_chx.errors import BrokerTimeoutError, InputError


@pytest.mark.parametrize(
    ("code", "text", "said"), stored_cases(__file__, "replies.txt", r"^(\d+) (.*)\n-> (.*)")
)
def test_what_an_answer_means_is_as_stored(code: str, text: str, said: str) -> None:
    error = error_for(int(code), text, where="amqp://h")
    passes = "passes" if is_transient(error) else "stays"
    assert f"{type(error).__name__}, {passes}: {error}" == said
    assert error.reply_code == int(code)


def test_silence_passes_and_wrong_input_does_not() -> None:
    assert is_transient(BrokerTimeoutError("no answer"))
    assert not is_transient(InputError("the connection is closed"))
