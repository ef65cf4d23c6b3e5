"""Topology files of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx import HashRing, InputError, Topology
from rabbit_chx.cli.inputs import read_ring_record
from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.toml_values import toml_value

QUEUE = '[[queues]]\nname = "jobs"\n'
RING = '{"exchanges": [{"name": "x", "type": "x-consistent-hash"}], "bindings": [{"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "1"}], "queues": [{"name": "q"}]}'


def test_stdin_is_read(ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]) -> None:
    stdin(QUEUE)
    code, out, errors = ran("topology", "export", "--from", "-")
    assert (code, errors) == (0, "")
    assert out.endswith(f"\n\n{QUEUE}")


def test_a_byte_order_mark_is_skipped(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for text in (QUEUE, RING):
        path = tmp_path / "file"
        path.write_text("\ufeff" + text)
        assert ran("topology", "export", "--from", str(path))[0] == 0


def test_bytes_that_are_not_text_are_named(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_bytes(b'[[queues]]\nname = "\xff"')
    code, _, errors = ran("topology", "export", "--from", str(path))
    assert code == 2
    assert f"line 2 of {path} is not UTF-8" in errors


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user without a broker, with a valid file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AMQP_URL", raising=False)
    (tmp_path / "topology.toml").write_text(QUEUE)
    return tmp_path


def test_valid_files_need_no_broker(folder: Path, ran: Callable[..., tuple[int, str, str]]) -> None:
    (folder / "definitions.json").write_text(RING)
    code, out, errors = ran("topology", "check", "--offline", "topology.toml", "definitions.json")
    assert (code, out) == (
        0,
        "topology.toml     valid: 1 queue\ndefinitions.json  valid: 1 exchange, 1 queue\n",
    )
    assert "the order of a ring" in errors


def test_the_mistakes_of_all_files_are_reported(
    folder: Path, ran: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "one.toml").write_text(QUEUE.replace("name", "nmae"))
    (folder / "two.toml").write_text(QUEUE + 'type = "quroum"\n')
    code, out, errors = ran(
        "topology", "check", "--offline", "one.toml", "topology.toml", "none.toml", "two.toml"
    )
    assert (code, out) == (2, "")
    assert "one.toml has a mistake:" in errors
    assert "none.toml cannot be read" in errors
    assert "two.toml has a mistake:" in errors
    assert 'write "quorum"' in errors


def test_a_misspelled_argument_is_a_finding(folder: Path, ran: Callable[..., tuple[int, str, str]]) -> None:
    (folder / "topology.toml").write_text(QUEUE + "arguments = { x-singel-active-consumer = true }\n")
    code, out, errors = ran("topology", "check", "--offline", "topology.toml", "--output", "json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert (finding["file"], finding["kind"]) == ("topology.toml", "ignored-argument")
    assert finding["destination"] == "jobs"
    assert finding["fix"] == "did you mean x-single-active-consumer?"
    assert finding["message"] in errors
    _, out, _ = ran("topology", "check", "--offline", "topology.toml")
    assert "valid, 1 ignored argument: 1 queue" in out


def test_an_argument_that_the_release_ignores_is_a_finding(
    folder: Path, ran: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "topology.toml").write_text(
        QUEUE + 'type = "quorum"\narguments = { x-delayed-retry-min = 5 }\n'
    )
    offline = ("topology", "check", "--offline", "topology.toml")
    assert ran(*offline)[0] == 0
    code, out, _ = ran(*offline, "--release", "4.0.5", "--output", "json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["kind"]) == (1, "ignored-argument")
    assert "which RabbitMQ 4.0.5 ignores (RabbitMQ has it from 4.3 on)" in finding["message"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--offline", "topology.toml", "--output", "prometheus"), "leave out one of them"),
        (("topology.toml", "two.toml"), "leave out two.toml"),
        ((), "Missing argument 'FILE...'"),
    ],
)
def test_what_a_check_refuses(
    ran: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], remedy: str
) -> None:
    code, out, errors = ran("topology", "check", *arguments)
    assert (code, out) == (2, "")
    assert remedy in errors


VARIABLES = """
[variables]
env = "dev"
count = 2

[[exchanges]]
name = "${env}"
type = "x-consistent-hash"
ring = [{ queue = "${env}.{1..${count}}" }]

[[queues]]
name = "${env}.{1..${count}}"
"""


@pytest.mark.parametrize(
    ("given", "queues"),
    [
        ([], ["dev.1", "dev.2"]),
        (["--set", "count=3"], ["dev.1", "dev.2", "dev.3"]),
        (["--values", "prod.toml"], ["prod.1"]),
        (["--values", "prod.toml", "--set", "env=a=b"], ["a=b.1"]),
        (["--set", "env=x", "--set", "env=y", "--set", "count=1"], ["y.1"]),
    ],
)
def test_values_replace_the_defaults_of_variables(
    folder: Path,
    answer: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    queues: list[str],
) -> None:
    (folder / "v.toml").write_text(VARIABLES)
    (folder / "prod.toml").write_bytes(b'\xef\xbb\xbfenv = "prod"\r\ncount = 1\r\n')
    exported = answer("topology", "export", "--from", "v.toml", *given)["queues"]
    assert Topology.from_toml("queues = " + toml_value(exported)).queues == tuple(
        map(QueueDefinition, queues)
    )
    monkeypatch.setenv("RABBIT_CHX_VALUES", "prod.toml")
    assert answer("keys", "--topology", "v.toml", "prod.1")["keys"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--set", "count"], "--set count has no value: write --set NAME=VALUE"),
        (["--set", "=1"], "--set =1 has no value: write --set NAME=VALUE"),
        (["--set", "count=x"], 'line 4, variables.count: the given value "x" is not an integer'),
        (["--set", "conut=3"], "the file does not use the variable conut, which is given; did you mean count?"),
        (["--values", "none.toml"], "the values file none.toml cannot be read"),
        (["--values", "bad.toml"], "bad.toml has a mistake"),
        (["--values", "tables.toml"], "tables.toml has 2 mistakes:\n  line 2, day = 2026-11-26: the value of a variable is a text, a number, true or false, or a list; write name"),
        (["--values", "tables.toml"], "line 4, prod = { count = 3 }: the value of a variable"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_value_is_named(
    folder: Path, ran: Callable[..., tuple[int, str, str]], given: list[str], problem: str
) -> None:
    (folder / "v.toml").write_text(VARIABLES)
    (folder / "bad.toml").write_text("env = ")
    (folder / "tables.toml").write_text("count = 2\nday = 2026-11-26\n\n[prod]\ncount = 3\n")
    code, out, errors = ran("topology", "check", "--offline", "v.toml", *given)
    assert (code, out) == (2, "")
    assert problem in errors


EXPORT: dict[str, Any] = {
    "format": "rabbit-chx/topology",
    "format_version": 1,
    "cluster": "a" * 300,
    "queues": [{"name": "q.{1..2}", "type": "quorum"}],
}


def test_an_export_is_known_wherever_its_format_is(
    folder: Path, ran: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "t.json").write_text("\ufeff" + json.dumps({**EXPORT, "cluster": "c"}, indent=1))
    (folder / "sorted.json").write_text(
        json.dumps(dict(reversed({**EXPORT, "cluster": "c" * 250}.items())), indent=1)
    )
    for file in ("t.json", "sorted.json"):
        code, out, errors = ran("topology", "check", "--offline", file)
        assert (code, out, errors) == (0, f"{file}  valid: 2 queues\n", "")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"queues": [{"name": "q", "type": None}]}, "t.json has a mistake:\n  queues[0].type: the value is null; remove the field"),
        ({"queues": [{"name": "q", "type": "quroum"}]}, 't.json has a mistake:\n  queues[0].type = "quroum": the value must be'),
        ({"variables": {"a": 1}, "cluster": "c"}, "t.json has a mistake:\n  variables.a: the variable a is not used"),
        ({"format_version": None}, "t.json has format_version None, and this release reads 1: write it again with topology export"),
        ({"format_version": 2}, "t.json has format_version 2, and this release reads 1: write it again with topology export"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_export_has_no_line_of_another_text(
    folder: Path, ran: Callable[..., tuple[int, str, str]], changes: dict[str, Any], problem: str
) -> None:
    (folder / "t.json").write_text(json.dumps({**EXPORT, "cluster": "c", **changes}))
    code, out, errors = ran("topology", "check", "--offline", "t.json")
    assert (code, out) == (2, "")
    assert problem in errors


def test_a_topology_file_is_no_record(folder: Path) -> None:
    (folder / "applied.toml").write_text('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n')
    with pytest.raises(
        InputError, match=r"^applied\.toml is not the record of a ring: .* Leave --ring-from out"
    ):
        read_ring_record("applied.toml")
    (folder / "export.json").write_text(json.dumps(EXPORT))
    with pytest.raises(InputError, match=r"^export\.json is not the record of a ring"):
        read_ring_record("export.json")


def test_what_is_no_record_is_named_with_its_file(folder: Path) -> None:
    (folder / "plan.json").write_text('{"format": "rabbit-chx/plan"}')
    with pytest.raises(InputError, match=r"^plan\.json: this JSON is not a ring"):
        read_ring_record("plan.json")
    ring = {**json.loads(HashRing.from_bindings([("a", 1)], None, "assumed").to_json()), "exchange": "x"}
    (folder / "ring.json").write_text(json.dumps(ring))
    with pytest.raises(InputError, match=r"^ring\.json is assumed, so it is not a record"):
        read_ring_record("ring.json")
    read = json.loads(HashRing.from_buckets(["b", "a"]).to_json())
    (folder / "ring.json").write_text(json.dumps(read))
    with pytest.raises(InputError, match="does not contain the name of its exchange"):
        read_ring_record("ring.json")
    (folder / "ring.json").write_text(json.dumps({**read, "exchange": "x"}))
    record = read_ring_record("ring.json")
    assert (record.exchange, record.state.bindings) == ("x", (("b", "1"), ("a", "1")))


def test_values_are_for_all_files(folder: Path, ran: Callable[..., tuple[int, str, str]]) -> None:
    (folder / "a.toml").write_text('[variables]\nenv = "dev"\n[[queues]]\nname = "a-${env}"\n')
    (folder / "b.toml").write_text('[[queues]]\nname = "b-${count}"\n')
    both = ("topology", "check", "--offline", "a.toml", "b.toml", "--set", "env=prod", "--set", "count=3")
    assert ran(*both)[0] == 0
    code, _, errors = ran(*both, "--set", "conut=3")
    assert (code, errors) == (
        2,
        "rabbit-chx: no file uses the variable conut, which is given: write ${conut} where it belongs, or do not pass it\n",
    )
    assert ran(*both[:4], "--set", "env=prod", "--set", "count=3")[0] == 2


def test_values_of_the_environment_are_for_all_files(
    folder: Path, ran: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "q.{1..%s}" }]\n'
    (folder / "old.toml").write_text(ring % 2)
    (folder / "new.toml").write_text("[variables]\ncount = 2\n" + ring % "${count}")
    (folder / "values.toml").write_text("count = 3\n")
    monkeypatch.setenv("RABBIT_CHX_VALUES", "values.toml")
    code, out, errors = ran("compare", "--topology", "old.toml", "--to-ring", "new.toml")
    assert (code, errors, "3 destinations" in out) == (1, "", True)
