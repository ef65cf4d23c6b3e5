"""Queues are appended under traffic: `apply --wait-drained` keeps the order of each key, and says what makes that impossible."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pytest
from bounded import until
from changed_site import ChangedSite
from command_line import PROGRAM, ended
from numbered_load import numbered_load

from rabbit_chx import Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing.order_checker import OrderChecker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
_PER_S = 90
_PREFETCH = 5


def _text(count: int, kind: str = "quorum") -> str:
    return (
        f'[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{{ queue = "events.{{1..{count}}}" }}]\n'
        f'[[queues]]\nname = "events.{{1..4}}"\ntype = "{kind}"\n'
    )


@contextmanager
def _reader(
    url: str, queue: str, checker: OrderChecker | None, begins: threading.Event | None = None
) -> Iterator[None]:
    """Handle the messages of a queue beside the block, from an event on; without a checker take some, and acknowledge none."""
    over = threading.Event()

    def read() -> None:
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=_PREFETCH)
            for method, _, body in channel.consume(queue, inactivity_timeout=0.1):
                if over.is_set():
                    return
                if method is None or body is None or checker is None:
                    continue
                while begins is not None and not begins.is_set() and not over.is_set():
                    connection.sleep(0.1)
                key, number = body.decode().split()
                checker.handled(key, int(number), redelivered=bool(method.redelivered))
                channel.basic_ack(method.delivery_tag or 0)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def _count(site: ChangedSite, queue: str) -> int:
    return site.channel.queue_declare(queue, passive=True).method.message_count or 0


def _arguments(site: ChangedSite, tmp_path: Path, *more: str) -> list[str]:
    """Return `apply` of four queues, without access to rabbitmqctl: the order is that of the record."""
    file = tmp_path / "topology.toml"
    file.write_text(_text(4))
    addresses = ["--url", site.broker.url, "--management-url", str(site.broker.management_url)]
    return [PROGRAM, "apply", str(file), "--allow", "moved=1", *addresses, "--yes", *more]


@pytest.mark.extended
@pytest.mark.parametrize("is_obeyed", [True, False], ids=["obeyed", "not obeyed"])
def test_the_order_of_each_key_is_kept_by_who_waits(
    site: ChangedSite, tmp_path: Path, *, is_obeyed: bool
) -> None:
    """The old queues hold messages of ten seconds at the bind. Whoever does not wait breaks the order, so the test can fail."""
    site.apply(Topology.from_toml(_text(3)))
    url, checker, is_bound = site.broker.url, OrderChecker(), threading.Event()
    with ExitStack() as readers, numbered_load(url, per_s=_PER_S) as load:
        for n in (1, 2, 3):
            readers.enter_context(_reader(url, f"events.{n}", checker, is_bound))
        until(lambda: all(_count(site, f"events.{n}") > 300 for n in (1, 2, 3)), "messages wait")
        waits = ("--wait-drained", "120") if is_obeyed else ()
        command = _arguments(site, tmp_path, *waits, "-o", "json")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: _count(site, "events.4"), "the queue is bound")
                if is_obeyed:
                    is_bound.set()
                out, errors = process.communicate(timeout=150)
            finally:
                process.kill()
        readers.enter_context(_reader(url, "events.4", checker))
        until(lambda: not _count(site, "events.4"), "the new queue is read")
        is_bound.set()
    assert process.returncode == 0, errors
    if is_obeyed:
        drained = json.loads(out)["drained"]
        assert (drained["never_empty"], drained["early"]) == ([], [])
        assert "waiting for events.1 (" in errors
    with ExitStack() as readers:
        for n in (1, 2, 3, 4):
            readers.enter_context(_reader(url, f"events.{n}", checker))
        until(lambda: checker.report().messages >= load.count, "all messages are handled")
    found = checker.report(sent=load.sent)
    assert found.lost == 0, found
    assert (found.out_of_order == 0) is is_obeyed, found


def test_a_queue_that_is_never_empty_is_named_and_the_plan_is_applied(
    site: ChangedSite, tmp_path: Path
) -> None:
    """Its messages are with a consumer that does not acknowledge them: AMQP alone counts none."""
    site.apply(Topology.from_toml(_text(3)))
    site.channel.basic_publish("", "events.2", b"k 0")
    with _reader(site.broker.url, "events.2", None):
        until(lambda: _count(site, "events.2") == 0, "the message is with the consumer")
        done = ended(*_arguments(site, tmp_path, "--wait-drained", "9"))
    assert done.returncode == 3, done.stderr
    assert "not drained  events.2 (1 message) after" in done.stdout
    (following,) = [line for line in done.stdout.splitlines() if line.startswith("next")]
    assert "start the consumers of events.4 only when events.2 has been empty" in following
    assert site.live().exchange("events") == Topology.from_toml(_text(4)).exchange("events")


def test_a_new_ring_takes_no_keys_from_a_queue(site: ChangedSite, tmp_path: Path) -> None:
    done = ended(*_arguments(site, tmp_path))
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("next")]


def test_what_makes_the_order_impossible_is_said_before_anything_changes(
    site: ChangedSite, tmp_path: Path
) -> None:
    site.apply(Topology.from_toml(_text(3)))
    site.channel.basic_publish("", "events.1", b"k 0")
    until(lambda: _count(site, "events.1") == 1, "a message waits")
    before = site.live()
    with _reader(site.broker.url, "events.4", None):
        until(lambda: site.channel.queue_declare("events.4", passive=True).method.consumer_count, "it reads")
        command = _arguments(site, tmp_path, "--wait-drained")
        done = ended(*command)
        planned = ended(*[PROGRAM, "plan", *[word for word in command[2:] if word != "--yes"][:-1]])
    for text in (done.stdout + done.stderr, planned.stdout):
        said = " ".join(text.split())
        assert "events.1 has 1 message and no consumer, so it is never empty" in said
        assert "events.4 has 1 consumer already" in said
        assert "kept for each key, if" not in said
    assert (done.returncode, planned.returncode) == (4, 1)
    assert site.live() == before


def test_an_interrupted_wait_says_what_is_left_to_do(site: ChangedSite, tmp_path: Path) -> None:
    site.apply(Topology.from_toml(_text(3)))
    site.channel.basic_publish("", "events.2", b"k 0")
    with _reader(site.broker.url, "events.2", None):
        until(lambda: _count(site, "events.2") == 0, "the message is with the consumer")
        command = _arguments(site, tmp_path, "--wait-drained", "200")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                said = next(line for line in process.stderr if "to have been empty once" in line)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=30)
            finally:
                process.kill()
    assert "events.2 (" in said
    assert process.returncode == 130
    assert (
        "the plan is applied, and the wait was interrupted: start the consumers of events.4 only when"
        in errors
    )
    assert site.live().exchange("events") == Topology.from_toml(_text(4)).exchange("events")
