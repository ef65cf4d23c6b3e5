"""A stream that does not exist where a reading begins is an error, whatever failOnDataLoss is. No broker."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import NotFoundError
from rabbit_chx.streams.ends import LogEnd, LogEnds
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import MicroBatches
from spark_connector.reading.sources import Sources


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch, fail: str) -> None:
    monkeypatch.setattr(LogEnds, "ends", lambda _self, _streams: {"s": LogEnd(5, None)})
    monkeypatch.setattr(LogEnds, "offset_of", lambda *_: 0)
    texts = {"url": "rabbitmq-stream://localhost", "stream": "s,nope", "failOnDataLoss": fail}
    options = ReadOptions.parse(texts)
    read = Sources(options)
    words = r"there is no stream 'nope' \(a queue of another type may have that name\): check the name and the vhost$"
    with pytest.raises(NotFoundError, match=words) as error:
        MicroBatches(options).begin()
    assert error.value.queue == "nope"
    with pytest.raises(NotFoundError, match=words):
        read.offsets_at("startingOffsets", "earliest", read.ends())
