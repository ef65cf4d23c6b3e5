"""Every example of the README, run as it is written but for the address of the broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from blocks import console_examples, page, python_blocks, replaced, run_blocks, run_command, run_doctest
from pyspark.sql import SparkSession

from rabbit_chx import HashRing
from rabbit_chx.testing import RunningBroker

README = "README.md"
EXAMPLES = console_examples(page(README))
RING_SOURCE = "docker compose exec -T rabbitmq"


def test_the_answers_are_those_of_the_library() -> None:
    run_doctest(README)


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command[:70] for command, _ in EXAMPLES])
def test_the_example_prints_what_the_page_says(command: str, printed: str, tmp_path: Path) -> None:
    done = run_command(command, 60, tmp_path)
    assert done.stdout.decode() == printed
    assert done.stderr == b""


def test_the_shares_of_the_first_screen_are_exact() -> None:
    ring = HashRing.from_bindings([(f"q{number}", 1) for number in range(1, 11)])
    first, last = (f"{100 * ring.share_moved(ring.unbind(queue)):.1f} %" for queue in ("q1", "q10"))
    said = re.findall(r"first(?: one)? moves ([\d.]+ %).*?last(?: one)? ([\d.]+ %)", page(README))
    assert said == [(first, last)] * 2


def test_its_rates_are_those_of_the_benchmark() -> None:
    rates = re.findall(r"wrote ([\d,]+) rows/s", page(README))
    assert len(rates) == 2
    assert all(f"| {rate} |" in page("bench/README.md") for rate in rates)


def test_it_promises_the_delivery_that_the_page_on_spark_promises() -> None:
    def promise(text: str) -> str:
        (found,) = re.findall(r"^> (A successful write .*?consumer\.)$", text, re.MULTILINE | re.DOTALL)
        return re.sub(r"\s+(> )?", " ", str(found))

    assert promise(page(README)) == promise(page("docs/spark.md"))


def test_the_ring_source_is_the_service_of_the_compose_file() -> None:
    assert f'"{RING_SOURCE}"' in page(README)
    assert re.search(r"^services:\n  rabbitmq:\n", page("docker-compose.yml"), re.MULTILINE)


@pytest.mark.broker
def test_a_topology_is_applied_checked_and_planned(vhost: RunningBroker, tmp_path: Path) -> None:
    assert vhost.management_url is not None
    assert vhost.ring_via is not None
    here = {
        "amqp://guest:guest@localhost": vhost.url,
        "http://localhost:15672": vhost.management_url,
        RING_SOURCE: shlex.join(vhost.ring_via),
    }
    section = page(README).partition("## Change it safely")[2].partition("\n## ")[0]
    (file,) = re.findall(r"^```toml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (excerpt,) = re.findall(r"^```text\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    topology = tmp_path / "topology.toml"
    topology.write_text(file)
    done = run_command(f"set -e\n{replaced(commands, here)}", 120, tmp_path)
    assert done.returncode == 0, done.stderr

    topology.write_text(file.replace("orders.{1..4}", "orders.{2..4}"))
    exports = "".join(line + "\n" for line in commands.splitlines() if line.startswith("export"))
    done = run_command(f"{replaced(exports, here)}rabbit-chx topology plan topology.toml", 60, tmp_path)
    assert done.returncode == 1
    printed = iter(done.stdout.decode().splitlines())
    assert [line for line in excerpt.splitlines() if line and line not in printed] == []
    assert "--allow-moved 0.9" in done.stdout.decode()
    assert "--allow-delete" in done.stdout.decode()
    run_command(f"{replaced(exports, here)}rabbit-chx topology arrange topology.toml --write", 60, tmp_path)
    assert 'ring = [{ queue = "orders.4"' in topology.read_text()


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_the_snippets_run(
    spark: SparkSession, vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None  # the README's own getOrCreate takes it
    assert len(python_blocks(README)) == 4
    assert vhost.ring_via is not None
    run_blocks(README, {"amqp://guest:guest@localhost": vhost.url, RING_SOURCE: shlex.join(vhost.ring_via)})
    said = capsys.readouterr().out
    for line in re.findall(r"print\(.*\)  # (.*)", page(README)):
        assert line in said
