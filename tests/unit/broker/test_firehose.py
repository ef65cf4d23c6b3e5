"""A management API that fails when tracing is to be switched off, and releases that have other metadata of a vhost.

The API is a fake, because a real one does not fail at will. Tracing itself is in tests/broker/test_firehose.py.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock, call

import pytest

from rabbit_chx.broker import firehose
from rabbit_chx.broker.firehose import end_trace, left_trace, traced_node
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, NotFoundError, UnreachableError
from rabbit_chx.topology.objects import TRACE

BARE = {"tracing": True}
OLD = {"tracing": True, "description": "d", "tags": ["a", "b"], "default_queue_type": "undefined"}
NEW = {**OLD, "default_queue_type": "classic", "metadata": {"default_queue_type": "quorum"}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Mock:
    monkeypatch.setattr(firehose, "_OFF_PAUSE_S", 0.01)
    api = Mock()
    api.get.return_value = NEW
    return api


@pytest.mark.parametrize(
    ("vhost", "kept"),
    [
        (BARE, {"description": "", "tags": ""}),
        (OLD, {"description": "d", "tags": "a,b"}),
        (NEW, {"description": "d", "tags": "a,b", "default_queue_type": "quorum"}),
    ],
)
def test_the_metadata_of_the_vhost_are_kept(api: Mock, vhost: dict[str, Any], kept: dict[str, str]) -> None:
    api.get.return_value = vhost
    api.delete.side_effect = NotFoundError("no sign")
    end_trace(api, "v")
    assert api.put.call_args == call("vhosts", "v", body={"tracing": False, **kept})


def test_it_is_tried_again_and_what_stays_on_is_said(api: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put.side_effect = [UnreachableError("away"), BrokerRefusedError("not ready"), None]
    end_trace(api, "v")
    assert api.put.call_count == 3
    api.delete.assert_called_once()
    monkeypatch.setattr(firehose, "_OFF_TIMEOUT_S", 0.05)
    api.put.side_effect = UnreachableError("away")
    with pytest.raises(
        UnreachableError, match=r"tracing of vhost 'v' could not be switched off, and may be on.*away"
    ):
        end_trace(api, "v")
    api.put.reset_mock()
    api.put.side_effect = AccessRefusedError("the tag is gone")
    with pytest.raises(BrokerRefusedError, match=r"may be on.*the tag is gone"):
        end_trace(api, "v")
    assert api.put.call_count == 1


def test_tracing_is_left_on_if_a_sign_is_there_and_nobody_traces(api: Mock) -> None:
    sign = {"arguments": {"switched-on-by": "me", "node": "rabbit@a"}}
    here, there = {"node": "rabbit@a"}, {"node": "rabbit@b"}
    api.get_list.return_value = [{"name": "q"}]
    api.get.side_effect = [sign, here, NEW]
    assert left_trace(api, "v") == "me"
    for answers in (
        [NotFoundError("no sign")],
        [sign, here, AccessRefusedError("no administrator")],
        [sign, there],  # which has a switch of its own
    ):
        api.get.side_effect = answers
        assert left_trace(api, "v") is None
    api.get.side_effect = [sign, here]
    api.get_list.return_value = [{"name": TRACE}]
    assert left_trace(api, "v") is None
    api.delete.assert_not_called()


def test_a_sign_that_outlives_the_tracing_is_deleted(api: Mock) -> None:
    """As after a restart, which switches tracing off: later tracing is that of others."""
    sign = {"arguments": {"switched-on-by": "me", "node": "rabbit@a"}}
    api.get_list.return_value = []
    for outcome in (None, NotFoundError("another command was faster"), AccessRefusedError("no permission")):
        api.get.side_effect = [sign, {"node": "rabbit@a"}, {**NEW, "tracing": False}]
        api.delete.side_effect = outcome
        assert left_trace(api, "v") is None
        api.delete.assert_called_with("exchanges", "v", TRACE)


def test_the_node_is_named_if_it_is_one_of_several(api: Mock) -> None:
    api.get.return_value = {"node": "rabbit@a"}
    api.get_list.return_value = [{"name": "rabbit@a"}]
    assert traced_node(api) is None
    api.get_list.return_value = [{"name": "rabbit@a"}, {"name": "rabbit@b"}]
    assert traced_node(api) == "rabbit@a"
    api.get_list.return_value = [{"name": "rabbit@a"}, {"name": "rabbit@b", "running": False}]
    assert traced_node(api) is None
