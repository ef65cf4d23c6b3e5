"""Two processes with one publisher name on a real broker: what is reported as confirmed is stored, and the loser is told what is not.

Random interleavings are in simulation/, each order of requests in unit/streams.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from super_streams import declare_super_stream

from rabbit_chx import StreamPublisher, StreamReader
from rabbit_chx.errors import InputError
from rabbit_chx.streams.log_lookup import LogEnds
from rabbit_chx.streams.nodes import settings_of
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("connection"),
]

#: For each line of its input it publishes so many calls of 100 rows, and prints how many of all rows are reported as confirmed, and the error.
PROGRAM = """
import json, sys
from rabbit_chx import StreamPublisher
from rabbit_chx.errors import PublishError
url, tag, first, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
confirmed, error = 0, ""
with StreamPublisher(url, name="orders", **how) as publisher:
    for line in sys.stdin:
        try:
            for _ in range(0 if error else int(line)):
                ids = range(first, first + 100)
                rows = [f"{tag} {n}" for n in ids]
                confirmed += publisher.publish_many([f"key-{n % 7}" for n in ids], rows, ids=ids).confirmed
                first += 100
        except PublishError as raised:
            confirmed, error = confirmed + raised.report.confirmed, str(raised)
        print(json.dumps([confirmed, error]), flush=True)
"""
FORMS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "stream": ({"stream": "s"}, ("s",)),
    "sub-entries": ({"stream": "s", "sub_entry_rows": 50}, ("s",)),
    "super stream": ({"super_stream": "all"}, ("all-0", "all-1")),
}


class Writer:
    """A process that publishes."""

    def __init__(
        self, vhost: RunningBroker, stack: ExitStack, tag: str, first: int, how: dict[str, Any]
    ) -> None:
        command = [sys.executable, "-c", PROGRAM, vhost.stream_url, tag, str(first), json.dumps(how)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(self._process)
        stack.callback(self._process.kill)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def begin(self, calls: int) -> None:
        """Let it publish."""
        print(calls, file=self._in, flush=True)

    def result(self) -> tuple[int, str]:
        """Return the number of all confirmed rows, and the error."""
        confirmed, error = json.loads(self._out.readline())
        return confirmed, error

    def publish(self, calls: int) -> tuple[int, str]:
        """Let it publish, and return the result."""
        self.begin(calls)
        return self.result()

    def end(self) -> None:
        """Let it close its publisher."""
        self._in.close()
        assert self._process.wait(30) == 0


Begin = Callable[[str, int], Writer]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, vhost: RunningBroker) -> tuple[dict[str, Any], tuple[str, ...]]:
    declare_super_stream(vhost.url, "all", {"0": "all-0", "1": "all-1"})
    return FORMS[request.param]


@pytest.fixture
def begin(vhost: RunningBroker, form: tuple[dict[str, Any], tuple[str, ...]]) -> Iterator[Begin]:
    with ExitStack() as stack:
        yield lambda tag, first: Writer(vhost, stack, tag, first, form[0])


def stored(vhost: RunningBroker, streams: tuple[str, ...]) -> Counter[str]:
    """Return the number of rows of each process."""
    found = Counter[str]()
    for stream in streams:
        with StreamReader(vhost.stream_url, stream) as reader:
            for batch in reader:
                values: list[Any] = batch["value"].to_pylist()
                found.update(value.decode().split()[0] for value in values)
    return found


def test_the_old_process_of_a_rollout_is_told_what_is_not_stored(
    vhost: RunningBroker, begin: Begin, form: tuple[dict[str, Any], tuple[str, ...]]
) -> None:
    """The new one continues at 1,501, while the old one still sends 1 to 3,000."""
    old, new = begin("old", 1), begin("new", 1_501)
    assert old.publish(3) == (300, "")
    assert new.publish(2) == (200, "")
    old.begin(27)
    new.begin(28)
    confirmed, error = old.result()
    assert "another writer uses the name 'orders'" in error
    assert re.search(r"\d+ confirmed rows up to id (39\d|400) are not stored", error)
    assert new.result() == (3_000, "")
    assert stored(vhost, form[1]) == {"old": confirmed, "new": 3_000}
    for each in (old, new):
        each.end()
    with StreamPublisher(vhost.stream_url, name="orders", **form[0]) as publisher:
        assert publisher.publish_many(["k"] * 50, ["later"] * 50, ids=range(4_501, 4_551)).confirmed == 50


def test_of_two_processes_with_the_same_ids_none_reports_a_row_that_is_not_stored(
    vhost: RunningBroker, begin: Begin, form: tuple[dict[str, Any], tuple[str, ...]]
) -> None:
    both = {tag: begin(tag, 1) for tag in ("a", "b")}
    for each in both.values():
        each.publish(0)
    for each in both.values():
        each.begin(30)
    results = {tag: each.result() for tag, each in both.items()}
    assert any(error for _, error in results.values())
    found = stored(vhost, form[1])
    for tag, (confirmed, error) in results.items():
        assert confirmed <= found[tag], error
        assert error or confirmed == found[tag] == 3_000


def test_two_processes_with_the_same_rows_store_each_once(
    vhost: RunningBroker, begin: Begin, form: tuple[dict[str, Any], tuple[str, ...]]
) -> None:
    """Two attempts of a task of Spark are such processes."""
    both = [begin("same", 1), begin("same", 1)]
    for each in both:
        each.begin(10)
    assert [each.result() for each in both] == [(1_000, ""), (1_000, "")]
    assert stored(vhost, form[1]) == {"same": 1_000}


def test_the_name_of_a_super_stream_is_not_that_of_a_stream(vhost: RunningBroker) -> None:
    declare_super_stream(vhost.url, "all", {"0": "all-0", "1": "all-1"})
    for create in (0, 1):
        with pytest.raises(
            InputError,
            match="'all' is not a stream, but a super stream with the partitions all-0, all-1: pass it as super",
        ):
            StreamPublisher(vhost.stream_url, stream="all", create=create)
    with pytest.raises(InputError, match="'all' is not a stream, but a super stream"):
        StreamReader(vhost.stream_url, "all")
    ends = LogEnds(settings_of(vhost.stream_url), {}, 30.0)  # of a read of Spark
    with closing(ends), pytest.raises(InputError, match="'all' is not a stream, but a super stream"):
        ends.ends(["all"])
    for create in (0, 2):
        with pytest.raises(InputError, match="'s' is not a super stream, but a stream: pass it as stream"):
            StreamPublisher(vhost.stream_url, super_stream="s", create=create)
    with pytest.raises(
        InputError, match="create is 5, and super stream 'all' has 2 partitions: pass create=2"
    ):
        StreamPublisher(vhost.stream_url, super_stream="all", create=5)
    StreamPublisher(vhost.stream_url, super_stream="all", create=2).close()
    for create in (0, 3):  # any exchange without a queue
        with pytest.raises(
            InputError,
            match=r"'amq\.topic' is not a super stream, but an exchange to which no queue is bound",
        ):
            StreamPublisher(vhost.stream_url, super_stream="amq.topic", create=create)
