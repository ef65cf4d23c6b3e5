"""A scratch vhost is deleted at the end, whatever goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import chain, repeat
from unittest.mock import Mock

import pytest

from rabbit_chx import errors
from rabbit_chx.broker.scratch import scratch_vhost

AWAY, STOP = errors.BrokerTimeoutError("no answer"), KeyboardInterrupt()
BUSY = errors.BrokerRefusedError("not ready", reply_code=503)
NO = errors.AccessRefusedError("no", reply_code=403)
GONE = errors.NotFoundError("gone", reply_code=404)


def api_with(faults: Iterable[BaseException | None]) -> Mock:
    """A fake of the management API, which scripts faults: what it raises to each change, in turn; None is success, as is each change after them."""
    return Mock(request=Mock(side_effect=chain(faults, repeat(None))))


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
    api = api_with(faults)
    with pytest.raises(error) if error else nullcontext(), scratch_vhost(api):
        pass
    assert [call.args[0] for call in api.request.call_args_list] == ["PUT", *["DELETE"] * deletions]


def test_a_vhost_that_a_node_was_to_start_too_early_is_made_again() -> None:
    """Seen with three nodes of 4.3.6: the node answers for a node that has not seen the vhost yet."""
    lags = errors.BrokerRefusedError(
        "500 ({failed_to_start_vhost_on_nodes,[{'rabbit@c',{error,{no_such_vhost,<<\"v\">>}}}]})",
        reply_code=500,
    )
    api = api_with([lags])
    with scratch_vhost(api) as name:
        pass
    calls = [call.args for call in api.request.call_args_list]
    assert [call[2] for call in calls if call[0] == "PUT"][1:] == [name]
    with pytest.raises(errors.BrokerRefusedError), scratch_vhost(api_with([lags, None, lags])):
        pass


@pytest.mark.parametrize(
    ("fault", "kind"), [(AWAY, errors.UnreachableError), (BUSY, errors.BrokerRefusedError)]
)
def test_what_cannot_be_undone_is_named(fault: Exception, kind: type[Exception]) -> None:
    """Also if the block fails: its error is kept."""
    said = "is left .*: run rabbitmqctl delete_vhost rabbit_chx-"
    faults = [None, *[fault] * 9]
    with pytest.raises(kind, match=said), scratch_vhost(api_with(faults)):
        pass
    with pytest.raises(ZeroDivisionError) as caught, scratch_vhost(api_with(faults)):
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert re.search(said, note)
