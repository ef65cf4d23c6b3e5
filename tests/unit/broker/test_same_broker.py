"""Answers of a management API that a broker of one node does not give: without names of clusters, and behind what AMQP shows.

The API is a fake, because a real one cannot be made late. Two real brokers are in tests/broker/test_same_broker.py.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from rabbit_chx.broker import same_broker
from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID
from rabbit_chx.broker.same_broker import OwnConnection, Ways
from rabbit_chx.errors import AccessRefusedError, MismatchError

NOTHING: list[dict[str, Any]] = []
LOCK: list[dict[str, Any]] = [{"name": "q"}, {"name": APPLY_LOCK, "arguments": {LOCK_ID: "mine"}}]
ANOTHER: list[dict[str, Any]] = [
    {"name": APPLY_LOCK, "arguments": {LOCK_ID: "theirs"}},
    {"name": "mine", "arguments": []},
]


def ways_to(api: Mock, cluster: str | None = "rabbit@a") -> Ways:
    api.masked_url = "http://h"
    return Ways("amqp://h", "/", cluster, "4.3.6", management=api, source=None)


@pytest.mark.parametrize("cluster", [None, "rabbit@a"])
def test_without_a_name_of_the_cluster_the_versions_are_compared(cluster: str | None) -> None:
    named = {} if cluster else {"cluster_name": "rabbit@b"}
    api = Mock()
    api.get.side_effect = [{"rabbitmq_version": version, **named} for version in ("4.3.6", "3.10.8")]
    found = ways_to(api, cluster)
    assert found.api is api
    with pytest.raises(
        MismatchError, match=r"amqp://h is RabbitMQ 4\.3\.6, and http://h is RabbitMQ 3\.10\.8"
    ):
        found.overview()


@pytest.mark.parametrize(
    ("node", "refused"),
    [("rabbit@a", False), ("rabbit@a.example.com", True), ("rabbit@aa", True), (None, True)],
)
def test_a_name_that_a_node_reports_by_default_is_of_its_cluster(node: str | None, *, refused: bool) -> None:
    api = Mock()
    api.get.return_value = {"rabbitmq_version": "4.3.6", "cluster_name": "rabbit@b"}
    api.get_list.side_effect = lambda path, *_, **__: [
        {"name": name} for name in ("rabbit@b", node) if path == "nodes" and name
    ]
    if refused:
        with pytest.raises(MismatchError, match=r"amqp://h is rabbit@a, and http://h is rabbit@b"):
            ways_to(api, "rabbit@a").overview()
    else:
        ways_to(api, "rabbit@a").overview()
        ways_to(api, "rabbit@a.example.com").overview()  # the default has the whole name of the host


def test_a_user_who_may_not_list_nodes_knows_those_of_queues() -> None:
    def listed(path: str, *_: object, **__: object) -> list[dict[str, Any]]:
        if path == "nodes":
            raise AccessRefusedError("nodes")
        return [{"name": "q", "node": "rabbit@b", "members": ["rabbit@a", "rabbit@b"]}]

    api = Mock()
    api.get.return_value = {"rabbitmq_version": "4.3.6", "cluster_name": "rabbit@b"}
    api.get_list.side_effect = listed
    ways_to(api, "rabbit@a").overview()
    with pytest.raises(MismatchError):
        ways_to(api, "rabbit@c").overview()


def test_a_node_may_list_the_lock_late_but_not_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_broker, "_PAUSE_S", 0)
    api = Mock()
    api.get.return_value = {"rabbitmq_version": "4.3.6", "cluster_name": "rabbit@a"}
    api.get_list.side_effect = [NOTHING, LOCK]
    found = ways_to(api)
    found.check_lock_in(NOTHING)  # it holds none
    found.lock_id = "mine"
    found.check_lock_in(NOTHING)
    assert api.get_list.call_count == 2
    api.get_list.side_effect = None
    api.get_list.return_value = ANOTHER
    says = "amqp://h and http://h are two brokers, although both are called rabbit@a: .* nothing was changed"
    with pytest.raises(MismatchError, match=says):
        found.check_lock_in(ANOTHER)


# -- the connection among those of the API: services connect and end meanwhile


OWN, SOCKET = "rabbit-chx 1", "10.0.0.1:5 -> 10.0.0.2:5672"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few looks as there must be, without pauses."""
    monkeypatch.setattr(same_broker, "_PAUSE_S", 0)
    monkeypatch.setattr(same_broker, "_NAMED_WITHIN_S", 0)


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize(
    ("listed", "names", "found"),
    [
        ([["old", SOCKET]], {}, True),
        ([["old", "b"]], {"b": OWN}, True),
        ([["old"], ["old"], ["old", "b"]], {"b": OWN}, True),
        ([["old"]], {}, False),
        ([["old", "b"]], {"b": "of a service"}, False),
        ([["old", "b"], ["old", "c"], ["d"], ["old"]], {}, False),
        ([["old", "b"], ["old", "b", "c"]], {"b": "of a service"}, None),
        ([["old", "b"]], {}, None),
    ],
    ids=[
        "by its addresses", "by its name", "late", "no other one", "one of a service", "many that end",
        "one of a service, and one without a name", "one without a name",
    ],
)  # fmt: skip
def test_the_connection_is_found_by_what_only_it_has(
    listed: list[list[str]], names: dict[str, str], *, found: bool | None
) -> None:
    looks = iter(listed)
    own = OwnConnection(OWN, SOCKET, ["old"], lambda: next(looks, listed[-1]), names.get)
    assert own.is_listed(has_names=True) is found


@pytest.mark.usefixtures("looks")
def test_an_api_that_shows_no_names_is_not_compared() -> None:
    without = OwnConnection(OWN, SOCKET, None, list, lambda _: None)
    assert without.is_listed(has_names=True) is None
    unnamed = OwnConnection(OWN, SOCKET, [], lambda: ["b"], lambda _: None)
    assert unnamed.is_listed(has_names=False) is None
    api = Mock(masked_url="http://h")
    api.get.return_value = {"rabbitmq_version": "4.3.6", "cluster_name": "rabbit@a", "disable_stats": True}
    found = Ways("amqp://h", "/", "rabbit@a", "4.3.6", management=api, source=None, own=unnamed)
    assert not found.not_compared
    found.overview()
    assert "does not show the names of this user's connections" in found.not_compared
