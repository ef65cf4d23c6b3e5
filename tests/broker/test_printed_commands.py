"""Every command that prints another command: the printed one is pasted, and acts on the same broker and vhost."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from checked_orders import ORDERS_FILE
from exchange_types import CHX
from shop import Shop
from slotted import declare_slots

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker

MORE = (
    ORDERS_FILE.replace('{ queue = "orders.3" }', '{ queue = "orders.4" }, { queue = "orders.3" }')
    .replace("{1..3}", "{1..4}")
    .replace("owns", "max_share_moved = 0.9\nowns")
)
FRESH = """
[[exchanges]]
name = "fresh"
type = "x-consistent-hash"
ring = [{ queue = "orders.2" }, { queue = "orders.1" }]
"""
#: The commands, and what each one prints at least once.
PRINTING = [
    ("topology plan more.toml", {"topology apply"}),
    ("topology plan fresh.toml", {"topology apply", "topology arrange"}),
    ("topology plan more.toml --output json", set()),
    ("topology check more.toml", {"topology plan", "topology apply"}),
    ("topology check orders.toml", {"ring repair"}),
    ("topology check orders.toml --output json", {"ring repair"}),
    ("topology check orders.toml --output markdown", {"ring repair"}),
    ("topology arrange definitions.json", {"topology export"}),
    ("ring check orders", {"ring repair"}),
    ("ring check --all", {"ring repair"}),
    ("ring check --all-vhosts --output json", {"ring repair"}),
    ("ring repair orders --file orders.toml", set()),
    ("slots show orders", {"ring show"}),
    ("slots balance events --pattern user-{n} --weight events.1=3", {"topology plan", "topology apply"}),
    ("verify --topology more.toml", {"topology check"}),
]


@pytest.fixture
def here(orders: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The vhost with findings, and files, where no broker is in the environment."""
    channel = orders.channel
    channel.queue_unbind("orders.1", "orders", "1")
    channel.queue_bind("orders.1", "orders", "1")
    channel.queue_bind("orders.2", "orders", "3")
    declare_slots(channel, "events", 8, ("events.1", "events.2"))
    for name in ("AMQP_URL", "RABBIT_CHX_VHOST", "RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_RING_VIA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.toml").write_text(ORDERS_FILE)
    (tmp_path / "more.toml").write_text(MORE)
    (tmp_path / "fresh.toml").write_text(FRESH)
    channel.exchange_declare("fresh", CHX, durable=True)
    for number in (1, 2, 3):
        channel.queue_bind(f"orders.{number}", "fresh", "1")
    definitions = orders.management.request("GET", "definitions", orders.settings.vhost)
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    yield orders
    channel.exchange_declare("orders", CHX, passive=True)


@pytest.mark.extended
@pytest.mark.parametrize(("command", "prints"), PRINTING, ids=[command for command, _ in PRINTING])
def test_a_printed_command_acts_on_the_same_vhost(
    here: Shop, capsys: pytest.CaptureFixture[str], command: str, prints: set[str]
) -> None:
    vhost = here.settings.vhost
    url, _, _ = here.broker.url.rpartition("/")
    options = ("--url", f"{url}/%2F", "--vhost", vhost, *here.live[2:])
    via = () if "verify" in command else here.via
    assert main([*shlex.split(command), *options, *via]) in (0, 1, 2, 3, 4, 77)
    found = capsys.readouterr()
    text = found.out + found.err
    if "output json" in command:
        text = "\n".join(str(finding) for finding in re.findall(r'"(?:[^"\\]|\\.)*"', text))
        text = "\n".join(json.loads(line) for line in text.splitlines())
    if "markdown" in command:
        text = re.sub(r"\\(.)|<!-- -->", r"\1", text)
    password = here.settings.password.reveal()
    assert f":{password}@" not in text
    of_vhost = [line for line in text.splitlines() if "--vhost" not in line or vhost in line]
    printed = re.findall(
        r"rabbit-chx ([a-z]+ [^;]*?)(?=;|, |,$| in the | to |$)", "\n".join(of_vhost), re.MULTILINE
    )
    assert {" ".join(line.split()[:2]) for line in printed} >= prints, text
    for line in printed:
        words = shlex.split(line.replace("FILE", "more.toml").split(" > ")[0])
        words += shlex.split("".join(re.findall(r" > \S+( --.*)", line)))
        code = main([*words, *(() if via else here.via)])
        pasted = capsys.readouterr()
        shown = pasted.out + pasted.err
        if words[:2] == ["topology", "apply"]:
            assert "needs a terminal to ask" in shown
            code = main([*words, "--yes", "--allow-moved", "0"])
            shown = capsys.readouterr().out
        # An export from a definitions file exits with 3: its order of the ring is a guess. An applied plan does not name its vhost.
        assert code in ((0, 1, 4) if words[1] != "export" else (0, 3)), (line, shown)
        assert vhost in shown or words[1] in ("arrange", "export") or "applied   nothing" in shown, (
            line,
            shown,
        )
