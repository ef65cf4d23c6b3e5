"""Calls of StreamPublisher without rows, and its end. `refusals.txt` has what it refuses."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stream_publishers import ROWS, Broker, publish, publish_rows, publisher

from rabbit_chx.connection.blocking_connection import FINALIZER_S
from rabbit_chx.errors import InputError


@pytest.mark.parametrize("make", [list, np.array, pa.array, lambda _: pa.chunked_array([], pa.string())])
@pytest.mark.parametrize("name", ["load", None])
def test_no_rows_are_no_error(broker: Broker, make: Any, name: str | None) -> None:
    ids: Any = (list if make is pa.array else np.array)([]) if name else None
    with publisher(name=name) as made:
        assert made.publish_many(make([]), make([]), ids=ids).complete
        assert made.publish_many(make([]), [], ids=ids).complete
    assert not broker.writers


def test_a_closed_publisher_is_refused(broker: Broker) -> None:
    made = publisher(name="load")
    publish(made)
    made.close()
    made.close()
    with pytest.raises(InputError, match="is closed: open a new one"):
        publish(made, first=ROWS + 1)
    assert len(broker.rows["s"].log) == ROWS


def test_a_publisher_that_is_dropped_closes_its_connections_and_hardly_waits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    made = publisher(name="load")
    publish(made)
    close = made._writers[0].close

    def close_within(within_s: float) -> None:
        waits.append(within_s)
        close()

    monkeypatch.setattr(made._writers[0], "close", close_within)
    with pytest.warns(ResourceWarning, match="<StreamPublisher load, 1 streams> was not closed"):
        del made
    assert waits == [FINALIZER_S]
    assert broker.writers[-1].failure is not None
    publisher(name="load")  # without a connection it is dropped silently
    publish_rows()
    gc.collect()
