"""Files of rings, and streams of keys: what a transcript of commands cannot show."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from command_line import BIND, PROGRAM, ended

from rabbit_chx.amqp.fields import FIELD_TYPES, FieldType
from rabbit_chx.cli.inputs import parse_header_type, read_ring_record
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing


@pytest.mark.parametrize("name", ["t", "a:b", "t:integer", ":", "", "t:long:"])
@pytest.mark.parametrize("type_", FIELD_TYPES)
def test_a_header_with_a_type_may_have_any_name(name: str, type_: FieldType) -> None:
    assert parse_header_type(f"{name}:{type_}") == (name, None if type_ == "longstr" else type_)


def test_a_line_is_answered_before_the_next_one_arrives() -> None:
    with subprocess.Popen(
        [PROGRAM, "route", *BIND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for key in (b"a", b"b"):
            process.stdin.write(key + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(key + b"\t")
        process.stdin.write(b"c")
        process.stdin.close()
        assert process.stdout.read().startswith(b"c\t")
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rabbit-chx route q=1 - <&-", "stdin is closed"),
        ("rabbit-chx route q=1 k >&-", "stdout is closed"),
    ],
)
def test_a_closed_stream_is_reported(command: str, message: str) -> None:
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    done = ended("bash", "-c", command, PATH=path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rabbit-chx: {message}")
    assert done.stderr.count("\n") == 1


EXPORT = {"format": "rabbit-chx/topology", "format_version": 1, "cluster": "a" * 300, "queues": []}
READ = json.loads(HashRing.from_buckets(["b", "a"]).to_json())
UNORDERED = json.loads(HashRing.unordered([("a", 1)], None).to_json()) | {"exchange": "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[exchanges]]", " is not the record of a ring: .* Leave --from out"),
        (json.dumps(EXPORT), " is not the record of a ring"),
        ('{"format": "rabbit-chx/plan"}', ": this JSON is not a ring"),
        (json.dumps(UNORDERED), " is of an unknown order"),
        (json.dumps(READ), " does not contain the name of its exchange"),
    ],
)
def test_what_is_no_record_of_a_ring_is_named_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^(the ring of )?{re.escape(str(path))}{words}"):
        read_ring_record(str(path))


def test_a_record_has_the_bindings_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    path.write_text(json.dumps({**READ, "exchange": "x"}))
    record = read_ring_record(str(path))
    assert (record.exchange, record.ring.bindings) == ("x", (("b", "1"), ("a", "1")))
