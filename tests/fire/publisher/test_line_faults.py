"""What happens to the line between publisher and broker: it breaks, falls silent, or becomes slow."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from delivery_checker import Verdict
from fire_load import Load, Run
from fire_stage import Stage
from publishing_support import through
from tcp_proxy import Proxy, black_hole

from rabbit_chx.amqp import TlsSettings
from rabbit_chx.publishing import Limits, Retries

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(restartable=True)]

GOES_ON = "Every row is confirmed, over a new connection."
WAITS = "Every row is confirmed; the publisher waits and keeps its connection."
HOLE_S = 6.0


HOLES = {
    "to-broker": "to the broker",
    "to-client": "from the broker",
    "both-ways": "in both directions",
}


@pytest.mark.representative
def test_resets_lose_no_row(stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]) -> None:
    line = way()
    load = Load(rows=15_000, fault_at=3_000)
    run = stage.publish(
        four_times(line.cut), stage.target(line.port), load=load, retries=Retries(backoff_s=0.2)
    )
    kept(run, fault="connection reset (RST), four times", promise=GOES_ON)
    assert run.report.reconnects >= 3


def test_closed_connections_lose_no_row(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()
    run = stage.publish(four_times(line.finish), stage.target(line.port), retries=Retries(backoff_s=0.2))
    kept(run, fault="connection ended in good order (FIN), four times", promise=GOES_ON)
    assert run.report.reconnects >= 3


def four_times(happen: Callable[[], None]) -> Callable[[Run], None]:
    def again_and_again(_: Run) -> None:
        happen()
        for _time in range(3):
            time.sleep(0.8)
            happen()

    return again_and_again


@pytest.mark.parametrize("hole", HOLES)
def test_a_line_without_answers_loses_no_row(
    hole: str, stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()

    def swallow(_: Run) -> None:
        line.to_broker.held, line.to_client.held = hole != "to-client", hole != "to-broker"
        time.sleep(HOLE_S)
        line.to_broker.held = line.to_client.held = False

    target = stage.target(line.port, connection_timeout_s=2)
    run = stage.publish(swallow, target, limits=Limits(confirm_timeout_s=2.0), retries=Retries(backoff_s=0.5))
    kept(
        run,
        fault=f"nothing comes through {HOLES[hole]} for {HOLE_S:.0f} s, confirm_timeout_s=2",
        promise=GOES_ON,
    )
    assert run.report.reconnects >= 1


@pytest.mark.representative
def test_a_line_that_stays_without_answers_is_an_error_in_time(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()
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


def test_refused_connections_are_tried_again(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()

    def refuse(_: Run) -> None:
        line.refuse()
        line.cut()
        time.sleep(5)
        line.accept()

    run = stage.publish(refuse, stage.target(line.port))
    kept(run, fault="connection reset, and new ones refused for 5 s", promise=GOES_ON)
    assert run.report.reconnects == 1


def test_a_slow_line_gets_each_row(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()

    def slow(_: Run) -> None:
        line.to_broker.bytes_per_s = 60_000
        time.sleep(8)
        line.to_broker.bytes_per_s = 0

    run = stage.publish(slow, stage.target(line.port))
    kept(run, fault="60 kB/s to the broker for 8 s", promise=WAITS)
    assert run.report.reconnects == 0


def test_a_line_that_trickles_gets_each_row(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()

    def trickle(_: Run) -> None:
        line.to_client.bytes_per_s = 100
        time.sleep(8)
        line.to_client.bytes_per_s = 0

    run = stage.publish(trickle, stage.target(line.port))
    kept(run, fault="100 B/s from the broker for 8 s", promise=WAITS)
    assert run.report.reconnects == 0


def test_a_line_that_is_late_gets_each_row(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()

    def delay(_: Run) -> None:
        line.to_broker.delay_s = line.to_client.delay_s = 0.15
        time.sleep(5)
        line.to_broker.delay_s = line.to_client.delay_s = 0.0

    run = stage.publish(delay, stage.target(line.port))
    kept(run, fault="150 ms more in each direction for 5 s", promise=WAITS)
    assert run.report.reconnects == 0


def test_a_host_without_answers_is_left_for_the_other(
    stage: Stage, way: Callable[[], Proxy], kept: Callable[..., Verdict]
) -> None:
    line = way()
    with black_hole() as nowhere:
        targets = [stage.target(port, connection_timeout_s=2) for port in (nowhere, line.port)]
        run = stage.publish(lambda _: line.cut(), *targets)
    kept(
        run,
        fault="two hosts, one drops every packet; then the connection is reset",
        promise="Every row is confirmed: the other host is tried after the connect timeout.",
    )
    assert run.report.reconnects == 1


def test_tls_in_packets_of_one_byte_gets_each_row(
    stage: Stage, way: Callable[..., Proxy], kept: Callable[..., Verdict], tmp_path: Path
) -> None:
    context, authority = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    secure = way(tls=context)
    sliced = way(url=through(stage.broker.url, secure.port))
    sliced.to_client.bytes_at_once = 1

    def slice_both(_: Run) -> None:
        sliced.to_broker.bytes_at_once = 1
        time.sleep(2)
        sliced.to_broker.bytes_at_once = 0

    target = stage.target(sliced.port, tls=TlsSettings(ca_file=str(tmp_path / "ca.pem")))
    run = stage.publish(slice_both, target, load=Load(rows=6_000, fault_at=1_200))
    kept(run, fault="TLS in packets of one byte", promise=WAITS)
    assert run.report.reconnects == 0
