"""Fixtures of the faults that happen to publishers and readers of streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from delivery_checker import Judge, Verdict
from fire_streams import StreamRun, keep, make_stream, stored
from tcp_proxy import Proxy

from rabbit_chx.testing import RunningBroker


@pytest.fixture
def home(vhost: RunningBroker) -> RunningBroker:
    """The vhost with the stream `s`."""
    make_stream(vhost)
    return vhost


@pytest.fixture
def line(vhost: RunningBroker) -> Iterator[Proxy]:
    """A line to the stream port."""
    with closing(Proxy(vhost.stream_url)) as made:
        yield made


@pytest.fixture
def kept(vhost: RunningBroker, record: Judge) -> Judge:
    """Checks what a run promised, and records it: ``kept(run, fault=..., promise=...)``."""

    def check(
        run: StreamRun, *, fault: str, promise: str, path: str = "StreamPublisher", **how: Any
    ) -> Verdict:
        return keep(run, stored(vhost.stream_url), record, path=path, fault=fault, promise=promise, **how)

    return check
