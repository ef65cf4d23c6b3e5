"""Ring sources: what they run, and what they make of the output. Real processes, no broker."""

from __future__ import annotations

import json
import shlex
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.broker import DiagnosticsRing, SavedRing, eval_expression
from rabbit_chx.errors import NotFoundError, RabbitChxError, RingSourceError
from rabbit_chx.routing import ExchangeRef

if TYPE_CHECKING:
    from pathlib import Path

    from rabbit_chx.routing import Destination

NO_RING = '{"message":"Exchange does not exist or is of a different type","result":"error"}'


def diagnostics_json(buckets: dict[str, object], exchange: str = "x") -> str:
    return json.dumps({"result": "ok", "node": "rabbit@h", "exchange": exchange, "buckets": buckets})


def term(*entries: tuple[int, str, str]) -> str:
    def number(name: str) -> int:
        return int.from_bytes(b"\1" + name.encode())

    return "{ring,[" + ",\n       ".join(f"{{{b},{kind},{number(n)}}}" for b, kind, n in entries) + "]}\n"


def program(body: str) -> tuple[str, ...]:
    """A command prefix that runs Python; the tool and its arguments are sys.argv[1:]."""
    return (sys.executable, "-c", f"import sys, time\n{body}")


def test_buckets_are_sorted_as_numbers() -> None:
    queues: dict[str, object] = {str(n): f"q{n}" for n in sorted(range(12), key=str)}

    assert SavedRing(diagnostics_json(queues)).read("/", "x") == tuple(f"q{n}" for n in range(12))


def test_holes_are_kept() -> None:
    assert SavedRing(diagnostics_json({"0": "a", "3": "b"})).read("/", "x") == ("a", None, None, "b")
    assert SavedRing(term((1, "queue", "a"))).read("/", "x") == (None, "a")


@pytest.mark.parametrize("text", [diagnostics_json({}), "{ring,[]}"])
def test_an_empty_ring(text: str) -> None:
    assert SavedRing(text).read("/", "x") == ()


@pytest.mark.parametrize("text", [NO_RING, "{error,not_found}\n"])
def test_saved_output_without_a_ring(text: str) -> None:
    with pytest.raises(NotFoundError, match=r"'x'.*'my vhost'"):
        SavedRing(text).read("my vhost", "x")


def test_saved_output_of_another_exchange() -> None:
    with pytest.raises(RingSourceError, match="exchange 'y', not of 'x'"):
        SavedRing(diagnostics_json({"0": "q"}, exchange="y")).read("/", "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ring index: 0, queue: 'q'",
        "[]",
        "{}",
        '{"buckets":[]}',
        '{"buckets":{"0":1}}',
        '{"buckets":{"-1":"q"}}',
        '{"buckets":{"99999999":"q"}}',
        "{ring,[{0,queue,97}",
        "{ring,[{0,queue,353}{1,queue,353}]}",
        "{ring,[{0,topic,353}]}",
        "{ring,[{0,queue,511}]}",
        "{ring,[{0,queue," + "9" * 5000 + "}]}",
    ],
)
def test_output_that_is_something_else(text: str) -> None:
    with pytest.raises(RingSourceError, match="was not read"):
        SavedRing(text).read("/", "x")


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=5))
def test_any_name_survives_the_eval_term(destinations: list[tuple[bool, str]]) -> None:
    text = term(
        *((i, "queue" if queue else "exchange", name) for i, (queue, name) in enumerate(destinations))
    )
    expected: list[Destination] = [name if queue else ExchangeRef(name) for queue, name in destinations]

    assert SavedRing(text).read("/", "x") == tuple(expected)


@given(NAMES, NAMES)
def test_no_character_of_a_name_reaches_the_eval_expression(vhost: str, exchange: str) -> None:
    digits = str.maketrans("", "", "0123456789,")

    assert eval_expression(vhost, exchange).translate(digits) == eval_expression("a", "b").translate(digits)


def test_saved_file(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    path.write_text(diagnostics_json({"0": "é"}), encoding="utf-8")

    assert SavedRing.from_file(path).read("/", "x") == ("é",)
    with pytest.raises(RingSourceError, match=r"missing\.json"):
        SavedRing.from_file(tmp_path / "missing.json")


def test_the_command_gets_its_arguments_unharmed() -> None:
    command = ["rabbitmq-diagnostics", "-q", "consistent_hash_exchange_ring_state", "my x"]
    command += ["--vhost", "a b", "--formatter", "json"]
    ring = diagnostics_json({"0": "q"}, "my x")

    source = DiagnosticsRing(program(f"print({ring!r} if sys.argv[1:] == {command!r} else sys.argv)"))

    assert source.read("a b", "my x") == ("q",)


@pytest.mark.parametrize(
    "trouble",
    [
        "sys.exit('** (FunctionClauseError) no function clause matching')",
        """print('{"buckets":{"0":"\\\\x{2603}"}}')""",
        """sys.stdout.buffer.write(b'{"buckets":{"0":"\\xe9"}}')""",
    ],
)
def test_where_diagnostics_cannot_say_it_eval_is_asked(trouble: str) -> None:
    source = DiagnosticsRing(
        program(
            "if sys.argv[1] == 'rabbitmqctl':\n"
            f"    print({term((0, 'exchange', 'slot'), (1, 'queue', 'q'))!r})\n"
            "else:\n"
            f"    {trouble}"
        )
    )

    assert source.read("/", "x") == (ExchangeRef("slot"), "q")


@pytest.mark.parametrize("name", ["--help", "-q", "é", 'a"b', "a'b", "a\\b", "$(id)", "a;b", "`id`"])
def test_names_that_a_command_line_could_misread_go_by_eval_alone(name: str) -> None:
    source = DiagnosticsRing(
        program(
            f"print({term((0, 'queue', 'q'))!r} if sys.argv[1:4] == ['rabbitmqctl', '-q', 'eval'] else 0)"
        )
    )

    assert source.read("/", name) == ("q",)
    assert source.read(name, "x") == ("q",)


def test_ssh_gets_a_line_for_the_shell_over_there(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport shlex, sys\n"
        f"words = shlex.split(' '.join(sys.argv[2:]))\n"
        f"print({term((0, 'queue', 'q'))!r} if len(words) == 4 else words)\n"
    )
    ssh.chmod(0o700)

    assert DiagnosticsRing((str(ssh), "host")).read("/", "$(id)") == ("q",)


def test_no_ring() -> None:
    with pytest.raises(NotFoundError, match="'nope'"):
        DiagnosticsRing(program(f"print({NO_RING!r}); sys.exit(69)")).read("/", "nope")
    with pytest.raises(NotFoundError, match="'-nope'"):
        DiagnosticsRing(program("print('{error,not_found}')")).read("/", "-nope")


def test_a_prefix_as_text_is_split_as_a_shell_does() -> None:
    prefix = shlex.join(program(f"print({diagnostics_json({'0': 'q'})!r})"))

    assert DiagnosticsRing(prefix).read("/", "x") == ("q",)


def test_a_tool_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # the machine may well have the tool, and a broker of its own
    with pytest.raises(RingSourceError, match="'docker exec NAME'"):
        DiagnosticsRing().read("/", "x")
    with pytest.raises(RingSourceError, match="prefix 'no-such-tool exec mq'"):
        DiagnosticsRing("no-such-tool exec mq").read("/", "x")


def test_a_tool_that_fails() -> None:
    with pytest.raises(
        RingSourceError, match=r"ended with 1 \(no such container mq\): check the command prefix"
    ):
        DiagnosticsRing(program("sys.exit('no such container mq')")).read("/", "x")


def test_a_tool_that_hangs() -> None:
    start = time.monotonic()
    with pytest.raises(RingSourceError, match=r"within 0\.5 s"):
        DiagnosticsRing(program("time.sleep(60)"), timeout_s=0.5).read("/", "x")

    assert time.monotonic() - start < 10


@given(st.text(max_size=30))
def test_any_saved_text_gives_a_ring_or_an_error_of_ours(text: str) -> None:
    try:
        SavedRing("{ring,[" + text).read("/", "x")
        SavedRing(text).read("/", "x")
    except RabbitChxError:
        pass
