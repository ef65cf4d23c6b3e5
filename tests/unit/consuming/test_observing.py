"""The file of observed keys of a group."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx.consuming import GroupMessage, observing
from rabbit_chx.consuming.observing import Observer
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.key_map import KeyMap

RING = HashRing.from_bindings([("q1", 2), ("q2", 1)])


def message(key: str, queue: str, **attributes: Any) -> GroupMessage:
    return GroupMessage(queue, key, b"", exchange=attributes.pop("exchange", "orders"), **attributes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.csv"


@pytest.fixture
def opened() -> Iterator[Any]:
    with ExitStack() as stack:

        def open_(path: Path, header: str | None = None, key_map: KeyMap | None = None) -> Observer:
            observer = stack.enter_context(closing(Observer(path, header, key_map)))
            observer.open()
            return observer

        yield open_


def rows(path: Path) -> list[tuple[str, str]]:
    with path.open(newline="") as file:
        return [(row["key"], row["queue"]) for row in csv.DictReader(file)]


def test_a_key_is_written_once_for_each_queue_also_over_restarts(path: Path, opened: Any) -> None:
    for _ in range(2):
        observer = opened(path)
        for key, queue in (("a", "q1"), ("a", "q1"), ('b, "c"', "q2"), ("é", "q1")):
            observer.observe(message(key, queue))
    opened(path).observe(message("a", "q2"))
    assert rows(path) == [("a", "q1"), ('b, "c"', "q2"), ("é", "q1"), ("a", "q2")]
    assert path.read_text().startswith("key,queue,time,exchange\n")


def test_messages_that_came_in_another_way_are_left_out(path: Path, opened: Any) -> None:
    observer = opened(path)
    observer.observe(message("straight", "q1", exchange=""))
    observer.observe(message("dead", "q1", headers={"x-death": []}))
    observer.observe(message("two\nlines", "q1"))
    observer.observe(message("\ud800", "q1"))
    assert rows(path) == []
    of_header = opened(path, "tenant")
    for headers in ({"tenant": "t1"}, {"tenant": 5}, {"tenant": b"bytes"}, {}):
        of_header.observe(message("k", "q1", headers=headers))
    assert rows(path) == [("t1", "q1")]


def test_the_file_is_bounded(path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MOST_KEYS", 3)
    observer = opened(path)
    for number in range(10):
        observer.observe(message(f"k{number}", "q1"))
    assert len(rows(path)) == 3
    for number in range(10):
        observer.observe(message("k0", f"q{number}"))
    assert len(rows(path)) == 6
    opened(path).observe(message("k0", "another"))
    assert len(rows(path)) == 6


@pytest.mark.parametrize("rest", ["k", "key,queue,time,exchange\na,q1", 'key,queue,time,exchange\n"b'])
def test_a_row_that_was_cut_off_is_removed(path: Path, opened: Any, rest: str) -> None:
    path.write_text(rest)
    opened(path).observe(message("c", "q2"))
    assert rows(path) == [("c", "q2")]


def test_other_files_are_left_alone(path: Path, tmp_path: Path, opened: Any) -> None:
    path.write_text("mine\n")
    with pytest.raises(InputError, match="a file that no group wrote"):
        opened(path)
    assert path.read_text() == "mine\n"
    with pytest.raises(InputError, match="cannot be written"):
        opened(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_ends_the_file_and_not_the_group(
    path: Path, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    observer = opened(path)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, observer._file)
    os.close(full)
    observer.observe(message("a", "q1"))
    observer.observe(message("b", "q1"))
    assert caplog.text.count("no more keys are observed") == 1
    assert rows(path) == []


def test_one_key_contradicts_a_ring(path: Path, opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    observer = opened(path, None, RING)
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            key = f"user-{number}"
            observer.observe(message(key, str(RING.destination_for(key))))
        assert (observer.contradiction, caplog.text) == (None, "")
        observer.observe(message("user-1", "q1"))
    assert str(observer.contradiction).endswith(", and the ring sends it to q2")
    assert "the key 'user-1' reached q1 (20" in str(observer.contradiction)
    assert "a message of the exchange 'orders' contradicts the ring: " in caplog.text


def test_a_header_is_hashed_by_the_rules_of_the_release(path: Path, opened: Any) -> None:
    """Before 3.13 a header is hashed with its type, so its text as a routing key would contradict the ring."""
    old = HashRing.from_bindings([("q1", 1), ("q2", 1)], Release("3.10.8"))
    observer = opened(path, "tenant", old)
    # phash2 of {longstr,<<"a">>} is 65711459, whose bucket of two is 1.
    observer.observe(message("", "q2", headers={"tenant": "a"}))
    assert observer.contradiction is None
    observer.observe(message("", "q1", headers={"tenant": "a"}))
    assert observer.contradiction is not None


def test_an_x_modulus_hash_exchange_is_not_compared(path: Path, opened: Any) -> None:
    exchange = ModulusHashExchange("m", [("q1", "1"), ("q2", "2")])
    observer = opened(path, None, exchange)
    for queue in ("q1", "q2"):
        observer.observe(message("a", queue))
    assert observer.contradiction is None
