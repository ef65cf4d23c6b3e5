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
from rabbit_chx.errors import (
    BrokerRefusedError,
    NotFoundError,
    RabbitChxError,
    RingSourceError,
    UnreachableError,
)
from rabbit_chx.routing import ExchangeRef

if TYPE_CHECKING:
    from pathlib import Path

    from rabbit_chx.routing import Destination

NO_RING = '{"message":"Exchange does not exist or is of a different type","result":"error"}'
NO_RING_TEXT = "Error:\nExchange does not exist or is of a different type\n"
HOSTILE = [
    "Exchange does not exist or is of a different type",
    "{error,not_found}",
    "it's 'x'",
    "Ã©",
    "{ring,[]}",
]


def diagnostics_json(buckets: dict[str, object], exchange: str = "x") -> str:
    return json.dumps({"result": "ok", "node": "rabbit@h", "exchange": exchange, "buckets": buckets})


def term(
    *entries: tuple[int, str, str], vhost: str = "/", exchange: str = "x", next_bucket: int | None = None
) -> str:
    def number(name: str) -> int:
        return int.from_bytes(b"\1" + name.encode())

    size = max((bucket for bucket, _, _ in entries), default=-1) + 1 if next_bucket is None else next_bucket
    shown = ",\n       ".join(f"{{{bucket},{kind},{number(name)}}}" for bucket, kind, name in entries)
    return f"{{ring,{number(vhost)},\n {number(exchange)},{size},\n      [{shown}]}}\n"


def banner(exchange: str, vhost: str) -> str:
    return f"Inspecting consistent hashing ring state for exchange {exchange} in virtual host '{vhost}'...\n"


def program(body: str) -> tuple[str, ...]:
    """A command prefix that runs Python; the tool and its arguments are sys.argv[1:]."""
    return (sys.executable, "-c", f"import sys, time\n{body}")


def test_buckets_are_sorted_as_numbers() -> None:
    queues: dict[str, object] = {str(n): f"q{n}" for n in sorted(range(12), key=str)}

    assert SavedRing(diagnostics_json(queues)).read("/", "x") == tuple(f"q{n}" for n in range(12))


def test_holes_are_kept() -> None:
    assert SavedRing(diagnostics_json({"0": "a", "3": "b"})).read("/", "x") == ("a", None, None, "b")
    assert SavedRing(term((1, "queue", "a"))).read("/", "x") == (None, "a")


def test_the_eval_term_has_the_number_of_the_next_bucket() -> None:
    buckets = SavedRing(term((0, "queue", "a"), next_bucket=6)).read("/", "x")

    assert (buckets, buckets.next_bucket) == (("a", None, None, None, None, None), 6)
    assert SavedRing(term(next_bucket=2)).read("/", "x") == (None, None)
    assert (
        SavedRing(term((0, "queue", "a"), (1, "queue", "b"), next_bucket=1)).read("/", "x").next_bucket
        is None
    )
    assert SavedRing(diagnostics_json({"0": "a"})).read("/", "x").next_bucket is None


@pytest.mark.parametrize("text", [diagnostics_json({}), "{ring,[]}", term(), banner("x", "/")])
def test_an_empty_ring(text: str) -> None:
    assert SavedRing(text).read("/", "x") == ()


@pytest.mark.parametrize("text", [NO_RING, "{error,not_found}\n", NO_RING_TEXT])
def test_saved_output_without_a_ring(text: str) -> None:
    with pytest.raises(NotFoundError, match=r"'x'.*'my vhost'"):
        SavedRing(text).read("my vhost", "x")


@pytest.mark.parametrize("exchange", HOSTILE)
def test_names_that_look_like_answers_are_names(exchange: str) -> None:
    lines = "".join(f"Ring index: {n}, queue: '{queue}'\n" for n, queue in enumerate(HOSTILE))
    entries = [(n, "queue", queue) for n, queue in enumerate(HOSTILE)]

    for text in (
        diagnostics_json({str(n): queue for n, queue in enumerate(HOSTILE)}, exchange),
        lines,
        banner(exchange, "/") + lines,
        term(*entries, exchange=exchange),
    ):
        assert SavedRing(text).read("/", exchange) == tuple(HOSTILE)


def test_lines_of_text_are_sorted_as_numbers() -> None:
    lines = [f"Ring index: {n}, queue: 'q{n}\x85\u2028'\r\n" for n in sorted(range(12), key=str)]

    assert SavedRing("".join(lines)).read("/", "x") == tuple(f"q{n}\x85\u2028" for n in range(12))


@pytest.mark.parametrize("vhost", ["/", "v 2"])
@pytest.mark.parametrize(
    "text",
    [
        diagnostics_json({"0": "q"}, exchange="y"),
        json.dumps(
            {
                "buckets": {"0": "q"},
                "exchange": "x",
                "message": "Consistent hashing ring state for exchange 'x' in vhost 'other'",
            }
        ),
        banner("y", "/") + "Ring index: 0, queue: 'q'",
        banner("x", "other"),
        term((0, "queue", "q"), exchange="y"),
        term((0, "queue", "q"), vhost="other"),
    ],
)
def test_saved_output_of_another_exchange_or_vhost(text: str, vhost: str) -> None:
    with pytest.raises(RingSourceError, match=r"this is the ring of .* 'x' in vhost"):
        SavedRing(text).read(vhost, "x")


def test_saved_output_that_names_the_vhost() -> None:
    message = "Consistent hashing ring state for exchange 'x' in vhost 'v 2'"
    text = json.dumps({"buckets": {"0": "q"}, "exchange": "x", "message": message})

    assert SavedRing(text).read("v 2", "x") == ("q",)
    assert SavedRing(term((0, "queue", "q"), vhost="v 2")).read("v 2", "x") == ("q",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ring index: 0, queue: 'q",
        "Ring index: 0, queue: 'q'\nand more",
        '{"message":"unable to connect","result":"error"}',
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
    command = ["rabbitmqctl", "-q", "eval", eval_expression(name, name)]
    ring = term((0, "queue", "q"), vhost=name, exchange=name)

    source = DiagnosticsRing(program(f"print({ring!r} if sys.argv[1:] == {command!r} else sys.argv)"))

    assert source.read(name, name) == ("q",)


def test_ssh_gets_a_line_for_the_shell_over_there(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport shlex, sys\n"
        f"words = shlex.split(' '.join(sys.argv[2:]))\n"
        f"print({term((0, 'queue', 'q'), exchange='$(id)')!r} if len(words) == 4 else words)\n"
    )
    ssh.chmod(0o700)

    assert DiagnosticsRing((str(ssh), "host")).read("/", "$(id)") == ("q",)


def test_no_ring() -> None:
    with pytest.raises(NotFoundError, match="'-nope'"):
        DiagnosticsRing(program("print('{error,not_found}')")).read("/", "-nope")


def test_a_prefix_as_text_is_split_as_a_shell_does() -> None:
    prefix = shlex.join(program(f"print({term((0, 'queue', 'q'))!r})"))

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


def test_a_prefix_that_says_something_else_is_to_be_checked() -> None:
    with pytest.raises(RingSourceError) as caught:
        DiagnosticsRing("echo exec mq").read("/", "x")

    assert "'echo exec mq rabbitmqctl'" in str(caught.value)
    assert str(caught.value).endswith("check the command prefix 'echo exec mq'")
    assert len(str(caught.value)) < 450


def test_a_plugin_that_is_not_enabled() -> None:
    said = 'Error:\n{:undef, [{:rabbit_exchange_type_consistent_hash, :ring_state, ["/", "x"], []}]}'
    with pytest.raises(RingSourceError, match="rabbitmq-plugins enable rabbitmq_consistent_hash_exchange"):
        DiagnosticsRing(program(f"sys.exit({said!r})")).read("/", "x")


def test_a_ring_that_cannot_be_read_is_no_refusal_of_the_broker() -> None:
    with pytest.raises(RingSourceError) as caught:
        DiagnosticsRing("no-such-tool").read("/", "x")

    assert not isinstance(caught.value, BrokerRefusedError | UnreachableError)


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
