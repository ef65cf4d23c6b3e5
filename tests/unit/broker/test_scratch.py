"""A scratch vhost is deleted at the end, whatever goes wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from rabbit_chx import errors
from rabbit_chx.broker.scratch import scratch_vhost

AWAY, STOP = errors.BrokerTimeoutError("no answer"), KeyboardInterrupt()
BUSY = errors.BrokerRefusedError("not ready", reply_code=503)
NO = errors.AccessRefusedError("no", reply_code=403)
GONE = errors.NotFoundError("gone", reply_code=404)


class Api:
    """A fake of the management API, which scripts faults: what it raises to each change, in turn; None is success."""

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults = [*faults]
        self.changes: list[str] = []

    def request(self, method: str, *path: str) -> Any:
        self.changes.append(method)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return path


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rabbit_chx.broker.scratch._REMOVAL_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("faults", "error", "deletions"),
    [
        ([NO], errors.AccessRefusedError, 0),
        ([AWAY], errors.BrokerTimeoutError, 1),
        ([BUSY, GONE, AWAY, GONE], errors.BrokerRefusedError, 4),
        ([AWAY, *[GONE] * 9], errors.BrokerTimeoutError, 5),
        ([None, STOP], KeyboardInterrupt, 2),  # the first signal does not end the clean-up
        *(([None, fault, fault], None, 3) for fault in (AWAY, BUSY, NO)),
    ],
)
def test_a_vhost_that_may_have_been_made_is_deleted(
    faults: Sequence[BaseException | None], error: type[BaseException] | None, deletions: int
) -> None:
    api: Any = Api(*faults)
    with pytest.raises(error) if error else nullcontext(), scratch_vhost(api):
        pass
    assert api.changes == ["PUT", *["DELETE"] * deletions]


@pytest.mark.parametrize(
    ("fault", "kind"), [(AWAY, errors.UnreachableError), (BUSY, errors.BrokerRefusedError)]
)
def test_what_cannot_be_undone_is_named(fault: Exception, kind: type[Exception]) -> None:
    """Also if the block fails: its error is kept."""
    said = "is left .*: run rabbitmqctl delete_vhost rabbit_chx-"
    api: Any = Api(None, *[fault] * 9)
    with pytest.raises(kind, match=said), scratch_vhost(api):
        pass
    api = Api(None, *[fault] * 9)
    with pytest.raises(ZeroDivisionError) as caught, scratch_vhost(api):
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert re.search(said, note)
