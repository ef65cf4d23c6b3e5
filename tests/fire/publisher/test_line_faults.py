"""What happens to the line between publisher and broker: it breaks, falls silent, or becomes slow."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trustme
from delivery_checker import Judge
from fire_load import Load, Run
from fire_stage import Stage
from publishing_support import through
from tcp_proxy import Proxy, Way, black_hole

from rabbit_chx.amqp import TlsSettings
from rabbit_chx.publishing import Limits, Retries

pytestmark = [pytest.mark.broker, pytest.mark.own_broker]

GOES_ON = "Every row is confirmed, over a new connection."
WAITS = "Every row is confirmed; the publisher waits and keeps its connection."
HOLE_S = 6.0


HOLES = {
    "to-broker": ("to the broker", ["to_broker"]),
    "to-client": ("from the broker", ["to_client"]),
    "both-ways": ("in both directions", ["to_broker", "to_client"]),
}


@pytest.mark.representative
def test_resets_lose_no_row(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy
    load = Load(rows=15_000, fault_at=3_000)
    run = stage.publish(
        lambda _: four_times(line.cut), stage.target(line.port), load=load, retries=Retries(backoff_s=0.2)
    )
    kept(run, fault="connection reset (RST), four times", promise=GOES_ON)
    assert run.report.reconnects >= 3


def test_closed_connections_lose_no_row(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy
    run = stage.publish(
        lambda _: four_times(line.finish), stage.target(line.port), retries=Retries(backoff_s=0.2)
    )
    kept(run, fault="connection ended in good order (FIN), four times", promise=GOES_ON)
    assert run.report.reconnects >= 3


def for_a_while(seconds: float, *ways: Way, **disturbance: Any) -> Callable[[Run], None]:
    """Return a fault: the ways have these attributes for some seconds, and then the former ones."""

    def disturb(_: Run) -> None:
        with ExitStack() as stack:
            for way in ways:
                stack.enter_context(patch.multiple(way, **disturbance))
            time.sleep(seconds)

    return disturb


def four_times(happen: Callable[[], None]) -> None:
    happen()
    for _ in range(3):
        time.sleep(0.8)
        happen()


@pytest.mark.parametrize("hole", HOLES)
def test_a_line_without_answers_loses_no_row(hole: str, stage: Stage, kept: Judge) -> None:
    line, (direction, ways) = stage.site.proxy, HOLES[hole]
    target = stage.target(line.port, connection_timeout_s=2)
    swallow = for_a_while(HOLE_S, *(getattr(line, way) for way in ways), held=True)
    run = stage.publish(swallow, target, limits=Limits(confirm_timeout_s=2.0), retries=Retries(backoff_s=0.5))
    kept(
        run,
        fault=f"nothing comes through {direction} for {HOLE_S:.0f} s, confirm_timeout_s=2",
        promise=GOES_ON,
    )
    assert run.report.reconnects >= 1


@pytest.mark.representative
def test_a_line_that_stays_without_answers_is_an_error_in_time(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy
    bounds: dict[str, Any] = {
        "limits": Limits(confirm_timeout_s=2.0),
        "retries": Retries(reconnect_timeout_s=3.0, backoff_s=0.5),
    }
    at: list[float] = []

    def swallow(_: Run) -> None:
        line.freeze()
        at.append(time.monotonic())

    run = stage.publish(swallow, stage.target(line.port, connection_timeout_s=2), **bounds)
    ended_s = time.monotonic() - at[0]
    assert "gave up after" in str(run.error)
    kept(
        run,
        fault="nothing comes through in both directions, for good",
        promise="PublishError after confirm_timeout_s, reconnect_timeout_s and the timeout of one attempt to connect. "
        "Every confirmed row is there.",
        outcome="PublishError: gave up",
    )
    assert ended_s < 60, "the sum of its bounds is 7 s"


def test_refused_connections_are_tried_again(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy

    def refuse(_: Run) -> None:
        line.refuse()
        line.cut()
        time.sleep(5)
        line.accept()

    run = stage.publish(refuse, stage.target(line.port))
    kept(run, fault="connection reset, and new ones refused for 5 s", promise=GOES_ON)
    assert run.report.reconnects == 1


def test_a_slow_line_gets_each_row(stage: Stage, kept: Judge) -> None:
    slow = for_a_while(8, stage.site.proxy.to_broker, bytes_per_s=60_000)
    expect_to_wait(stage, kept, slow, "60 kB/s to the broker for 8 s")


def test_a_line_that_trickles_gets_each_row(stage: Stage, kept: Judge) -> None:
    trickle = for_a_while(8, stage.site.proxy.to_client, bytes_per_s=100)
    expect_to_wait(stage, kept, trickle, "100 B/s from the broker for 8 s")


def test_a_line_that_is_late_gets_each_row(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy
    delay = for_a_while(5, line.to_broker, line.to_client, delay_s=0.15)
    expect_to_wait(stage, kept, delay, "150 ms more in each direction for 5 s")


def expect_to_wait(stage: Stage, kept: Judge, disturb: Callable[[Run], None], fault: str) -> None:
    """Every row is confirmed over the connection that is disturbed."""
    run = stage.publish(disturb, stage.target(stage.site.proxy.port))
    kept(run, fault=fault, promise=WAITS)
    assert run.report.reconnects == 0


def test_a_host_without_answers_is_left_for_the_other(stage: Stage, kept: Judge) -> None:
    line = stage.site.proxy
    with black_hole() as nowhere:
        targets = [stage.target(port, connection_timeout_s=2) for port in (nowhere, line.port)]
        run = stage.publish(lambda _: line.cut(), *targets)
    kept(
        run,
        fault="two hosts, one drops every packet; then the connection is reset",
        promise="Every row is confirmed: the other host is tried after the connect timeout.",
    )
    assert run.report.reconnects == 1


def test_tls_in_packets_of_one_byte_gets_each_row(stage: Stage, kept: Judge, tmp_path: Path) -> None:
    context, authority = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with (
        closing(Proxy(stage.broker.url, context)) as secure,
        closing(Proxy(through(stage.broker.url, secure.port))) as sliced,
    ):
        sliced.to_client.bytes_at_once = 1
        target = stage.target(sliced.port, tls=TlsSettings(ca_file=str(tmp_path / "ca.pem")))
        fault = for_a_while(2, sliced.to_broker, bytes_at_once=1)
        run = stage.publish(fault, target, load=Load(rows=6_000, fault_at=1_200))
    kept(run, fault="TLS in packets of one byte", promise=WAITS)
    assert run.report.reconnects == 0
