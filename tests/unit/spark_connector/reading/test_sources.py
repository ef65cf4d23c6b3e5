"""A stream that does not exist where a reading begins is an error, whatever failOnDataLoss is. No broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rabbit_chx.errors import NotFoundError
from rabbit_chx.streams.ends import LogEnd, LogEnds
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import MicroBatches
from spark_connector.reading.sources import Sources


def of_a_batch(options: ReadOptions) -> object:
    sources = Sources(options)
    return sources.offsets_at("startingOffsets", "earliest", sources.ends())


def of_a_query(options: ReadOptions) -> object:
    return MicroBatches(options).begin()


@pytest.mark.parametrize("plan", [of_a_batch, of_a_query])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[ReadOptions], object], fail: str
) -> None:
    monkeypatch.setattr(LogEnds, "ends", lambda _self, _streams: {"s": LogEnd(5, None)})
    monkeypatch.setattr(LogEnds, "offset_of", lambda *_: 0)
    options = {"url": "rabbitmq-stream://localhost", "stream": "s,nope", "failOnDataLoss": fail}
    words = r"there is no stream 'nope' \(a queue of another type may have that name\): check the name and the vhost$"
    with pytest.raises(NotFoundError, match=words) as error:
        plan(ReadOptions.parse(options))
    assert error.value.queue == "nope"
