"""What happens to a stream between two micro-batches of a query, asked of a real broker; Spark itself is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from streamed import Streamed
from tcp_proxy import Proxy

from rabbit_chx.errors import MissingRowsError
from rabbit_chx.streams import ends
from rabbit_chx.testing import RunningBroker
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import MicroBatches, Place

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

Plan = Callable[..., MicroBatches]


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    """A stream with ten rows."""
    stream = Streamed(vhost, "s", {})
    stream.publish([str(number) for number in range(10)])
    return stream


@pytest.fixture
def plan(vhost: RunningBroker) -> Iterator[Plan]:
    """Makes what plans a query."""
    made: list[MicroBatches] = []

    def make(**options: str) -> MicroBatches:
        texts = {"url": vhost.stream_url, "stream": "s", "startingOffsets": "earliest", **options}
        made.append(MicroBatches(ReadOptions.parse(texts, streaming=True)))
        return made[-1]

    yield make
    for batches in made:
        batches.close()


@pytest.mark.extended
@pytest.mark.parametrize("rows", [0, 3, 10, 30])
def test_a_stream_that_was_made_again(stream: Streamed, plan: Plan, rows: int) -> None:
    batches = plan()
    places = batches.after(batches.begin(), None, None)
    stream.make_again()
    stream.publish_singly(["another"] * rows)
    time.sleep(ends._CACHE_S)  # it may have the same figures
    if rows == 30:  # its reader finds that, by the fingerprint
        assert batches.after(places, None, None)["s"].next == 30
        return
    with pytest.raises(MissingRowsError, match="stream 's' was read up to offset 10, and it") as caught:
        batches.after(places, None, None)
    assert "failOnDataLoss=false" in str(caught.value)
    after = plan(failOnDataLoss="false").after(places, None, None)
    assert after["s"].next == rows
    assert plan(failOnDataLoss="false").after(after, None, None) == after


@pytest.mark.usefixtures("stream")
def test_a_stream_that_goes_and_comes_is_read_from_its_end(plan: Plan, vhost: RunningBroker) -> None:
    places = {"s": Place(0), "t": Place(5)}
    with pytest.raises(MissingRowsError, match="stream 't' was read up to offset 5, and it is deleted"):
        plan(stream="s,t").after(places, None, None)
    batches = plan(stream="s,t", failOnDataLoss="false")
    places = batches.after(places, None, None)
    assert (places["s"].next, places["t"]) == (10, Place(5))
    other = Streamed(vhost, "t", {})
    other.publish_singly(["1", "2"])  # to both, as both are bound to one exchange
    places = batches.after(places, None, None)
    assert (places["s"].next, places["t"].next) == (12, 2)  # it is another one
    other.publish_singly(["3"])
    assert batches.after(places, None, None)["t"].next == 3


def test_looks_share_a_connection_and_open_another_when_it_is_lost(
    stream: Streamed, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Proxy(stream.broker.stream_url)
    try:
        batches = plan(
            url=stream.broker.stream_url.replace(f":{stream.broker.stream_port}/", f":{line.port}/")
        )
        places = batches.after(batches.begin(), None, None)
        with monkeypatch.context() as offline:
            offline.setattr(ends, "open_any", None)
            offline.setattr(ends, "open_at", None)
            for number in range(3):
                stream.publish([str(number)])
                places = batches.after(places, None, None)
        assert places["s"].next == 13
        line.cut()
        assert batches.after(places, None, None) == places
    finally:
        line.close()
