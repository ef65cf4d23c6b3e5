"""What is undone on the broker at the end: a scratch vhost is deleted, and the tracer is switched off, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from rabbit_chx.broker.firehose import tracing
from rabbit_chx.broker.scratch_vhost import scratch_vhost
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

    def request(self, method: str, *path: str, body: Any = None) -> Any:
        if method == "GET":
            return {"tracing": False}
        self.changes.append(f"{method} {body['tracing']}" if body else method)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return path


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rabbit_chx.broker.scratch_vhost._REMOVAL_PAUSE_S", 0.0)
    monkeypatch.setattr("rabbit_chx.broker.firehose._OFF_PAUSE_S", 0.0)


def vhost(api: Any) -> AbstractContextManager[object]:
    return scratch_vhost(api)


def tracer(api: Any) -> AbstractContextManager[object]:
    return tracing(api, "shop")


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
    api = Api(*faults)
    with pytest.raises(error), vhost(api):
        pass
    assert api.changes == ["PUT", *["DELETE"] * deletions]


@pytest.mark.parametrize(("made", "undone"), [(vhost, "DELETE"), (tracer, "PUT False")])
def test_the_first_signal_does_not_end_the_clean_up(made: Callable[[Any], Any], undone: str) -> None:
    api = Api(None, STOP)
    with pytest.raises(KeyboardInterrupt), made(api):
        pass
    assert api.changes[1:] == [undone, undone]


@pytest.mark.parametrize("fault", [AWAY, BUSY, NO])
@pytest.mark.parametrize("made", [vhost, tracer])
def test_the_clean_up_is_tried_again(made: Callable[[Any], Any], fault: Exception) -> None:
    api = Api(None, fault, fault)
    with made(api):
        pass
    assert len(api.changes) == 4


@pytest.mark.parametrize(
    ("made", "fault", "kind", "remedy"),
    [
        (vhost, AWAY, UnreachableError, "is left .*: run rabbitmqctl delete_vhost rabbit_chx-"),
        (vhost, BUSY, BrokerRefusedError, "is left .*: run rabbitmqctl delete_vhost rabbit_chx-"),
        (tracer, BUSY, BrokerRefusedError, "may still be on .*: run rabbitmqctl trace_off --vhost 'shop'"),
    ],
)
def test_what_cannot_be_undone_is_named(
    made: Callable[[Any], Any], fault: Exception, kind: type[Exception], remedy: str
) -> None:
    with pytest.raises(kind, match=remedy), made(Api(None, *[fault] * 9)):
        pass
