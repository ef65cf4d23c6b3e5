"""A scratch vhost is deleted at the end, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rabbit_chx.broker.scratch import scratch_vhost
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    NotFoundError,
    UnreachableError,
)

AWAY = BrokerTimeoutError("no answer")
BUSY = BrokerRefusedError("not ready", reply_code=503)
NO = AccessRefusedError("no", reply_code=403)
GONE = NotFoundError("gone", reply_code=404)
STOP = KeyboardInterrupt()


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
        ([NO], AccessRefusedError, 0),
        ([AWAY], BrokerTimeoutError, 1),
        ([BUSY, GONE, AWAY, GONE], BrokerRefusedError, 4),
        ([AWAY, *[GONE] * 9], BrokerTimeoutError, 5),
    ],
)
def test_a_vhost_that_may_have_been_made_is_deleted(
    faults: Sequence[BaseException], error: type[Exception], deletions: int
) -> None:
    api: Any = Api(*faults)
    with pytest.raises(error), scratch_vhost(api):
        pass
    assert api.changes == ["PUT", *["DELETE"] * deletions]


def test_the_first_signal_does_not_end_the_clean_up() -> None:
    api: Any = Api(None, STOP)
    with pytest.raises(KeyboardInterrupt), scratch_vhost(api):
        pass
    assert api.changes == ["PUT", "DELETE", "DELETE"]


@pytest.mark.parametrize("fault", [AWAY, BUSY, NO])
def test_the_clean_up_is_tried_again(fault: Exception) -> None:
    api: Any = Api(None, fault, fault)
    with scratch_vhost(api):
        pass
    assert len(api.changes) == 4


@pytest.mark.parametrize(("fault", "kind"), [(AWAY, UnreachableError), (BUSY, BrokerRefusedError)])
def test_what_cannot_be_undone_is_named(fault: Exception, kind: type[Exception]) -> None:
    api: Any = Api(None, *[fault] * 9)
    with (
        pytest.raises(kind, match=r"is left .*: run rabbitmqctl delete_vhost rabbit_chx-"),
        scratch_vhost(api),
    ):
        pass


def test_an_error_of_the_block_is_kept_if_the_vhost_cannot_be_deleted() -> None:
    api: Any = Api(None, *[AWAY] * 9)
    with pytest.raises(ZeroDivisionError) as caught, scratch_vhost(api):
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert "is left (no answer): run rabbitmqctl delete_vhost rabbit_chx-" in note
