"""Ways to read the true ring: commands, and saved files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from ring_terms import HOSTILE, term

from rabbit_chx.broker import DiagnosticsRing, SavedRing
from rabbit_chx.broker.ring_source import eval_expression
from rabbit_chx.errors import BrokerRefusedError, NotFoundError, RingSourceError, UnreachableError


def program(body: str) -> tuple[str, ...]:
    """A command prefix that runs Python; the tool and its arguments are sys.argv[1:]."""
    return (sys.executable, "-c", f"import sys, time\n{body}")


def test_a_saved_file_is_read_in_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    text = '{"buckets":{"0":"é"}}'
    path.write_text(text, encoding="utf-8")
    assert SavedRing.from_file(path).read("/", "x") == ("é",)

    path.write_text(text, encoding="latin-1")
    assert SavedRing.from_file(path, encoding="latin-1").read("/", "x") == ("é",)
    with pytest.raises(RingSourceError, match=r"ring\.json.*encoding"):
        SavedRing.from_file(path)
    with pytest.raises(RingSourceError, match=r"missing\.json"):
        SavedRing.from_file(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "name", ["my x", "--help", "-q", "é", 'a"b', "a'b", "a\\b", "$(id)", "a;b", "`id`", *HOSTILE]
)
def test_the_command_gets_its_arguments_unharmed(name: str) -> None:
    """A prefix as text is split as a shell does."""
    command = ["rabbitmqctl", "-q", "eval", eval_expression(name, name)]
    ring = term((0, "queue", "q"), vhost=name, exchange=name)
    prefix = program(f"print({ring!r} if sys.argv[1:] == {command!r} else sys.argv)")
    assert DiagnosticsRing(prefix).read(name, name) == ("q",)
    assert DiagnosticsRing(shlex.join(prefix)).read(name, name) == ("q",)


def test_ssh_gets_a_line_for_the_shell_over_there(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport shlex, sys\n"
        f"words = shlex.split(' '.join(sys.argv[2:]))\n"
        f"print({term((0, 'queue', 'q'), exchange='$(id)')!r} if len(words) == 4 else words)\n"
    )
    ssh.chmod(0o700)
    assert DiagnosticsRing((str(ssh), "host")).read("/", "$(id)") == ("q",)


def test_a_tool_that_is_not_there_or_is_another_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        RingSourceError, match=r"'echo exec mq rabbitmqctl'.*check the command prefix 'echo exec mq'$"
    ):
        DiagnosticsRing("echo exec mq").read("/", "x")
    monkeypatch.setenv("PATH", str(tmp_path))  # the machine may well have the tool, and a broker of its own
    with pytest.raises(RingSourceError, match="'docker exec NAME'"):
        DiagnosticsRing().read("/", "x")
    with pytest.raises(RingSourceError, match="prefix 'no-such-tool exec mq'") as caught:
        DiagnosticsRing("no-such-tool exec mq").read("/", "x")
    assert not isinstance(caught.value, BrokerRefusedError | UnreachableError)


UNDEFINED = 'Error:\n{:undef, [{:rabbit_exchange_type_consistent_hash, :ring_state, ["/", "x"], []}]}'


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("print('{error,not_found}')", NotFoundError, "'-nope'"),
        ("sys.exit('no such mq')", RingSourceError, r"ended with 1 \(no such mq\): check the command prefix"),
        (f"sys.exit({UNDEFINED!r})", RingSourceError, "-plugins enable rabbitmq_consistent_hash_exchange"),
        ("time.sleep(60)", RingSourceError, r"within 0\.5 s"),
    ],
)
def test_a_tool_without_a_ring_is_an_error_with_its_reason(
    body: str, kind: type[Exception], says: str
) -> None:
    timeout_s = 0.5 if "sleep" in body else 60.0
    with pytest.raises(kind, match=says):
        DiagnosticsRing(program(body), timeout_s=timeout_s).read("/", "-nope")


@pytest.mark.parametrize(("printed", "timeout_ms"), [("60000", 60_000), ("undefined", None)])
def test_rings_are_read_with_the_default_consumer_timeout(printed: str, timeout_ms: int | None) -> None:
    ring = term((0, "queue", "q")).strip()
    both = DiagnosticsRing(program(f"print({f'{{rings,[{ring},{{error,not_found}}],{printed}}}'!r})"))
    none = DiagnosticsRing(program(f"print('{{rings,[],{printed}}}')"))
    assert (both.read_all("/", ["x", "y"]), both.consumer_timeout_ms) == ({"x": ("q",)}, timeout_ms)
    assert (none.read_all("/", []), none.consumer_timeout_ms) == ({}, timeout_ms)
    for source in (none, both):
        with pytest.raises(RingSourceError, match="this is not what the eval expression prints"):
            source.read_all("/", ["x"])
