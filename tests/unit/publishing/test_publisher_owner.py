"""Misuse of `Publisher` and `StreamPublisher`: two threads at once, a forked process, a pickle."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from scripted_peer import Peer
from stream_publishers import publisher as stream_publisher
from stream_publishers import running_broker

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import Publisher
from rabbit_chx.streams.publisher import StreamPublisher


@pytest.fixture(params=["Publisher", "StreamPublisher"])
def blocking(request: pytest.FixtureRequest) -> Iterator[Publisher | StreamPublisher]:
    """An open blocking publisher of either kind."""
    if request.param == "Publisher":
        peer = request.getfixturevalue("peer")
        with Publisher(peer.settings, "orders") as publisher:
            yield publisher
    else:
        with running_broker(), stream_publisher() as publisher:
            yield publisher


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Call a function in another thread, to its end."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call)


@pytest.mark.parametrize(
    "second_call",
    [lambda publisher: publisher.publish_many(["k"], ["second"]), lambda publisher: publisher.close()],
)
def test_a_second_thread_is_refused_while_a_call_runs(
    blocking: Any, second_call: Callable[[Any], object]
) -> None:
    refusals: list[object] = []

    def bodies() -> Iterator[str]:
        yield "first"
        refusals.append(in_thread(lambda: second_call(blocking)).exception())
        yield "last"

    report = blocking.publish_many(["k", "k"], bodies())
    assert (report.rows, report.confirmed) == (2, 2)
    (refusal,) = refusals
    assert isinstance(refusal, InputError)
    assert "is in a call of another thread" in str(refusal)
    assert type(blocking).__name__ in str(refusal)


def test_threads_may_use_it_one_after_the_other(blocking: Any) -> None:
    assert blocking.publish_many(["k"], ["b"]).confirmed == 1
    assert in_thread(lambda: blocking.publish_many(["k"], ["b"])).result().confirmed == 1
    assert blocking.publish_many(["k"], ["b"]).confirmed == 1


def test_a_callback_of_the_thread_in_a_call_may_close_the_publisher(peer: Peer) -> None:
    publisher = Publisher(peer.settings, "orders", progress=lambda _report: publisher.close())
    publisher.publish_many(["k"], ["b"])
    with pytest.raises(PublishError, match="closed"):
        publisher.publish_many(["k"], ["b"])


def test_a_forked_process_is_refused_and_its_close_does_nothing(
    blocking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking.publish_many(["k"], ["b"])
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(
            InputError, match=f"{type(blocking).__name__}.*opened by process .* after the fork"
        ):
            blocking.publish_many(["k"], ["b"])
        blocking.close()
        blocking.__del__()
    assert blocking.publish_many(["k"], ["b"]).confirmed == 1


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_publisher_cannot_be_pickled_or_copied(
    blocking: Any, shared: Any, take: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError, match=f"{type(blocking).__name__} .*cannot be pickled.*batch_publisher"):
        take(blocking)
    with shared() as publisher, pytest.raises(TypeError, match="cannot be pickled"):
        take(publisher)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Publisher, {"exchange": "orders"}),
        (StreamPublisher, {"stream": "s"}),
    ],
)
def test_a_publisher_whose_arguments_are_refused_can_be_printed(kind: Any, arguments: dict[str, str]) -> None:
    made = kind.__new__(kind)
    with pytest.raises(InputError):
        made.__init__([], **arguments)
    assert kind.__name__ in repr(made)
