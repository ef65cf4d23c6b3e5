"""The script of docs/operate/monitoring.md, the alerts and the dashboard, with a real node exporter and a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from blocks import page
from bounded import until
from command_line import PROGRAM, ended
from exposition import parsed_exposition
from programs import program
from shop import Shop
from sides import as_live

from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.cli.show import stream_group_report
from rabbit_chx.rendering.output import metrics_text
from rabbit_chx.testing.running_broker import free_ports
from rabbit_chx.topology import Topology, check

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
ALERTS = MONITORING / "alerts.yml"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def promtool(*arguments: str) -> None:
    done = ended(program("promtool"), *arguments, cwd=MONITORING)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_the_rules_are_right_and_fire_when_they_should() -> None:
    promtool("check", "rules", ALERTS.name)
    promtool("test", "rules", "alerts_test.yml")


def test_each_metric_of_the_rules_and_the_dashboard_is_one_of_a_check() -> None:
    empty = Topology()
    checks = {"/": check(as_live(empty), empty)}
    written = set(
        parsed_exposition(metrics_text(CheckReport("b:5672", checks, (), 1.0, "file").document().gauges))
    )
    of_group = set(parsed_exposition(metrics_text(stream_group_report("b:5552", "g", "/", ()).gauges)))
    for text in (ALERTS.read_text(), *EXPRESSIONS):
        assert set(re.findall(r"rabbit_chx_\w+", text)) <= written | of_group | {"rabbit_chx_group_members"}
    assert {name for name in written if name not in " ".join(EXPRESSIONS)} == set()


@contextmanager
def running(*command: str | Path, ready: str) -> Iterator[None]:
    """Run a server until the block ends; the block begins when it answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: got(ready) is not None, f"{command[0]} answers", every_s=0.2)
            yield
        finally:
            process.kill()


def got(url: str) -> bytes | None:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310  # our own servers
            content: bytes = answer.read()
            return content
    except OSError:
        return None


def run_script(folder: Path, url: str, management_url: str, ring_via: str) -> int:
    """Run the script of the page, which writes its metrics into a folder, and return its exit code."""
    settings = folder.with_name("rabbit-chx.env")
    settings.write_text(
        f'export AMQP_URL={url} RABBIT_CHX_MANAGEMENT_URL={management_url} RABBIT_CHX_RING_VIA="{ring_via}"\n'
    )
    (script,) = re.findall(
        r"```sh\n(#!/bin/sh\n# /usr/local.*?)```", page("docs/operate/monitoring.md"), re.DOTALL
    )
    file = folder.with_name("topology.toml")
    file.write_text(
        '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q1" }]\n[[queues]]\nname = "q1"\n'
    )
    for path, ours in (
        ("/etc/rabbit-chx.env", settings),
        ("/etc/topology.toml", file),
        ("/var/lib/node_exporter", folder),
    ):
        script = script.replace(path, str(ours))
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    return ended("sh", "-c", script, PATH=path).returncode


def test_the_script_of_the_page_fails_visibly_while_the_broker_is_down(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    (metrics / "rabbit_chx.prom").write_text("rabbit_chx_check_success 1\n")
    at = f"127.0.0.1:{port}"
    assert run_script(metrics, f"amqp://{at}", f"http://{at}", "docker exec nothing") == 69
    assert [file.name for file in metrics.iterdir()] == ["rabbit_chx.prom"]
    written = parsed_exposition((metrics / "rabbit_chx.prom").read_text())
    assert written["rabbit_chx_check_success"].value() == 0


@pytest.mark.extended
@pytest.mark.broker
def test_prometheus_has_the_alert_of_a_real_ring(shop: Shop, tmp_path: Path) -> None:
    exporter, prometheus = program("prometheus-node-exporter"), program("prometheus")
    folder = tmp_path / "metrics"
    folder.mkdir()
    shop.channel.queue_delete("q4")  # some keys end in no queue
    broker = shop.broker
    assert run_script(folder, broker.url, str(broker.management_url), shop.via[1]) == 0
    assert {file.name for file in folder.iterdir()} == {"rabbit_chx.prom"}
    metrics = (folder / "rabbit_chx.prom").read_text()
    assert parsed_exposition(metrics)["rabbit_chx_unroutable_share_ratio"].value(exchange="orders") > 0
    checked = ended("sh", "-c", f"{program('promtool')} check metrics <{folder / 'rabbit_chx.prom'}")
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout

    of_exporter, of_prometheus = (f"127.0.0.1:{port}" for port in free_ports(2))
    config = tmp_path / "prometheus.yml"
    scrape = {"job_name": "node", "static_configs": [{"targets": [of_exporter]}]}
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(json.dumps({"global": every, "rule_files": [str(ALERTS)], "scrape_configs": [scrape]}))
    api = f"http://{of_prometheus}/api/v1"

    def asked(expression: str) -> Any:
        answer = got(f"{api}/query?query={quote(expression)}")
        assert answer is not None, expression
        return json.loads(answer)["data"]["result"]

    with (
        running(
            exporter,
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={folder}",
            f"--web.listen-address={of_exporter}",
            ready=f"http://{of_exporter}/metrics",
        ),
        running(
            prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={of_prometheus}",
            ready=f"http://{of_prometheus}/-/ready",
        ),
    ):
        alert = 'ALERTS{alertname="RabbitChxKeysEndInNoQueue", alertstate="firing"}'
        until(lambda: asked(alert), "the alert fires", every_s=0.2)
        assert asked("node_textfile_scrape_error")[0]["value"][1] == "0"
        answers = {expression: asked(re.sub(r"\$\w+", ".*", expression)) for expression in EXPRESSIONS}
    empty = {expression.partition("{")[0] for expression, answer in answers.items() if not answer}
    # There is no group, and this exchange has no slots.
    assert empty == {
        "rabbit_chx_group_members",
        "rabbit_chx_parked_messages",
        "rabbit_chx_stream_group_lag_seconds",
        "rabbit_chx_stream_oldest_row_age_seconds",
    }
