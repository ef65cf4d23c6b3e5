"""The number of publisher names that a stream may remember, with a scripted answer of the API."""

from __future__ import annotations

import logging

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import InputError
from rabbit_chx.streams import references


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("count", "outcome"), [(199, "silent"), (200, "warns"), (250, "warns"), (251, "refused")]
)
def test_the_bounds_of_the_names(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
    outcome: str,
    *,
    is_known: bool,
) -> None:
    """`count` includes the publisher's own name, which the stream may have already."""
    names = [f"name-{n}" for n in range(count)]
    writers = dict.fromkeys(names if is_known else names[1:], 1)
    monkeypatch.setattr(references, "writers_of", lambda *_: writers)

    def check() -> None:
        references.check_references("http://h", ConnectionSettings(), "s", "name-0")

    with caplog.at_level(logging.WARNING):
        if outcome == "refused":
            with pytest.raises(InputError, match="remembers 251 publishers with 'name-0', of at most 255"):
                check()
        else:
            check()
    assert bool(caplog.records) == (outcome == "warns")
