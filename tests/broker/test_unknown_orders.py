"""What is not known never looks like an answer: all commands and outputs, with rings of unknown order, a dead broker, and a user of each tag."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from advised_users import TAGS
from canary import CANARY
from declared import with_login
from exchange_types import CHX
from few_seeds import few_seeds
from loopback import dead_port
from pika.adapters.blocking_connection import BlockingChannel
from slotted import declare_slots

from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.extended, pytest.mark.timeout(600)]

QUEUES = {"q1": "1", "q2": "2", "q3": "1"}
RING = """
[[exchanges]]
name = "o"
type = "x-consistent-hash"
ring = [{members}]
[[queues]]
name = "q{{1..{last}}}"
"""
TEXTS, PAGES = ("table", "json", "markdown"), ("table", "json", "markdown", "html")
KEYS = "key-{1..40}"
#: The commands, each with its outputs. SAME is a file with the bindings of the broker, OTHER one that changes them.
COMMANDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("route", "o", "key-1", "key-2"), TEXTS),
    (("route", "o", "key-1", "--explain"), TEXTS),
    (("route", "o", "--keys", KEYS), TEXTS),
    (("route", "o", "--reaching", "q1"), TEXTS),
    (("route", "events", "key-1"), TEXTS),
    (("compare", "o"), PAGES),
    (("compare", "o", "--keys", KEYS), PAGES),
    (("compare", "o", "--add", "q9=1"), PAGES),
    (("compare", "o", "--remove", "q1", "--keys", KEYS), PAGES),
    (("compare", "events"), PAGES),
    (("show",), PAGES),
    (("show", "o"), PAGES),
    (("show", "events"), TEXTS),
    (("show", "o", "--consumers"), (*PAGES, "prometheus")),
    (("check",), (*PAGES, "prometheus")),
    (("check", "o"), PAGES),
    (("check", "SAME"), PAGES),
    (("check", "OTHER"), PAGES),
    (("export",), TEXTS),
    (("plan", "SAME"), PAGES),
    (("plan", "OTHER"), PAGES),
    (("arrange", "OTHER"), TEXTS),
    (("apply", "OTHER", "--yes"), TEXTS),
    (("repair", "o", "--dry-run"), TEXTS),
    (("record", "o"), TEXTS),
    (("verify", "o", "--keys", KEYS), PAGES),
]
#: The option of a command that needs no order, and says what it did not compare without.
NEEDS_NONE = "--consumers"
#: What depends on the order, by its name in JSON, wherever it is; beside it stand bounds.
OF_ORDER = {"moved", "moved_at_worst", "skew", "matrix", "less", "moves", "slot"}
BESIDE = ("at_most",)
#: A new queue is bound last, in any order.
APPENDS = ("compare", "o", "--add", "q9=1")
#: What these commands do not look at without an order, or a sample.
NOT_LOOKED_AT = {"show": ("heaviest", "sample"), "verify": ("heaviest_key",)}
#: What only the bindings say, and what a file says.
OF_BINDINGS = {"bindings", "slots", "sharding", "changes", "after", "handed_over", "sample"}
#: An exact share of the keys that people read, but for a bound. One by weight has one decimal.
SHARE = re.compile(r"(?<![\d.])\d+\.\d\d+%")
HOLDS = re.compile(r"up to \S+|\S+% of the keys at the peak|(?<=max_share_moved )\S+")


def members(*queues: str) -> str:
    return ", ".join(f'{{ queue = "{queue}", weight = {QUEUES.get(queue, 1)} }}' for queue in queues)


@contextmanager
def user_of(broker: RunningBroker, vhost: str, tag: str) -> Iterator[dict[str, str]]:
    """Make a user who may do everything in a vhost, for a block; yield the environment of their commands."""
    api, name = Management(str(broker.management_url)), f"unknown-{os.getpid()}-{tag or 'none'}"
    api.put("users", name, body={"password": CANARY, "tags": tag})
    try:
        api.put("permissions", vhost, name, body=dict.fromkeys(("configure", "write", "read"), ".*"))
        yield {
            "AMQP_URL": with_login(broker.url, name, CANARY),
            "RABBIT_CHX_MANAGEMENT_URL": with_login(str(broker.management_url), name, CANARY),
        }
    finally:
        api.delete("users", name)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    found = {}
    for name, queues in {"SAME": ("q1", "q2", "q3"), "OTHER": ("q3", "q2", "q1", "q4")}.items():
        file = tmp_path / f"{name.lower()}.toml"
        file.write_text(RING.format(members=members(*queues), last=len(queues)))
        found[name] = str(file)
    return found


class Commands:
    """Runs commands, and collects what looks like an answer."""

    def __init__(
        self, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._files, self._monkeypatch, self._capsys = files, monkeypatch, capsys
        self.wrong: list[str] = []
        self.codes: list[int] = []

    def run(self, environment: dict[str, str], words: tuple[str, ...], output: str) -> tuple[int, str]:
        with self._monkeypatch.context() as patched:
            for name in ("RABBIT_CHX_RING_VIA", "RABBIT_CHX_VHOST"):
                patched.delenv(name, raising=False)
            for name, value in {**environment, "COLUMNS": "400"}.items():
                patched.setenv(name, value)
            code = main([*(self._files.get(word, word) for word in words), "-o", output])
        return code, self._capsys.readouterr().out

    def judge(self, environment: dict[str, str], words: tuple[str, ...], output: str) -> None:
        code, out = self.run(environment, words, output)
        self.codes.append(code)
        if code == 77 and not out:  # the user may not read what it takes
            return
        if words == APPENDS:
            self.wrong += (
                [] if code == 0 else [f"{words} -o {output} = {code}: a share that is certain is not said"]
            )
            return
        why = ["exit code 0"] if code == 0 and NEEDS_NONE not in words else []
        if output == "json":
            for line in out.splitlines() if words[:3] == ("route", "o", "--keys") else [out] if out else []:
                why += certain_in(json.loads(line), words)
        elif output != "prometheus":
            why += certain_words(out, words, output)
        self.wrong += [f"{words} -o {output} = {code}: {each}" for each in why]


def certain_in(document: dict[str, Any], words: tuple[str, ...]) -> Iterator[str]:
    """Yield what a document says about an order that is not known."""
    states = [each for each in walk(document) if isinstance(each, dict)]
    if NEEDS_NONE in words:
        yield from () if document["order_not_checked"] else ["nothing says that traffic was not compared"]
        hidden = [
            document["members"],
            *(queue["active"] for queue in document["queues"] if queue["consumers"]),
        ]
        yield from (f"of consumers {each}" for each in hidden if (each is None) == document["determined"])
    elif words[0] not in ("apply", "repair", "plan", "record") and document.get("determined") is not False:
        yield "nothing says that it is not determined"
    if words[0] in NOT_LOOKED_AT:
        yield from (
            f"{name} = {document[name]}" for name in NOT_LOOKED_AT[words[0]] if document.get(name) is not None
        )
    for each in states:
        yield from (f"{name} = {each[name]}" for name in OF_ORDER & each.keys() if each[name] is not None)
        if isinstance(each.get("buckets"), list):
            yield f"buckets = {each['buckets']}"
        if "key" in each and each.get("destination") is not None:
            yield f"{each['key']} goes to {each['destination']}"


def walk(value: object) -> Iterator[object]:
    """Yield a value of JSON and all in it, but for bounds, and what bindings say."""
    yield value
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in BESIDE and name not in OF_BINDINGS:
                yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def certain_words(out: str, words: tuple[str, ...], output: str) -> Iterator[str]:
    """Yield what people read about an order that is not known."""
    if output == "html":
        if 'role="img"' in out:
            yield "a picture"
        out = re.sub(r"<style.*?</style>|<[^>]*>", " ", out, flags=re.DOTALL)
    for line in out.splitlines():
        rest = HOLDS.sub(" ", line)
        if SHARE.search(rest):
            yield f"a share: {line.strip()}"
        if words[0] == "route" and re.search(r"\bkey-\d|canary-", line) and output != "html":
            is_listed = "not determined" in line or line.strip(" -*").startswith(("key", "term"))
            if not is_listed:
                yield f"an answer: {line.strip()}"
    if re.search(r"(?:no findings|findings\W+none)(?!(?: in \d+ queues)?, without| so far)", out):
        yield "no findings, without what was not looked at"
    if NEEDS_NONE in words and "NOT checked" not in out:
        yield "nothing says that traffic was not compared"


def test_nothing_certain_is_said_about_an_order_that_is_not_known(
    vhost: RunningBroker,
    bare_channel: BlockingChannel,
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bare_channel.exchange_declare("o", CHX, durable=True)
    for queue, weight in QUEUES.items():
        bare_channel.queue_declare(queue, durable=True)
        bare_channel.queue_bind(queue, "o", weight)
    declare_slots(bare_channel, "events", 4, ("q1", "q2"))
    bare_channel.basic_consume("q1", lambda *_: None)
    name = vhost.url.rpartition("/")[2]
    commands = Commands(files, monkeypatch, capsys)
    for number, tag in enumerate(TAGS):
        with user_of(vhost, name, tag) as environment, few_seeds():
            for each, (words, outputs) in enumerate(COMMANDS):
                chosen = (
                    outputs if tag == "administrator" else ("json", outputs[(number + each) % len(outputs)])
                )
                for output in chosen:
                    commands.judge(environment, words, output)
    assert not commands.wrong, "\n".join(commands.wrong)
    assert {3, 4, 77} <= {*commands.codes}


def test_a_broker_that_does_not_answer_is_no_answer(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(files, monkeypatch, capsys)
    with dead_port() as port:
        nobody = {
            "AMQP_URL": f"amqp://127.0.0.1:{port}",
            "RABBIT_CHX_MANAGEMENT_URL": f"http://127.0.0.1:{port}",
        }
        for words, outputs in COMMANDS:
            for output in outputs:
                code, out = commands.run(nobody, (*words, "--wait", "0"), output)
                is_metric = output == "prometheus" and "rabbit_chx_check_success" in out
                assert (code, out == "" or is_metric) == (69, True), (words, output, out)
