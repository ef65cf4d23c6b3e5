"""Compute all results again with an Erlang VM: tests/vectors/{phash2,exs1024,jump}.json.

The terms, seeds and bucket counts are those in the files: to add one, write it there with any result. ::

    python tools/erlang_vectors.py --check
    python tools/erlang_vectors.py --erl "docker run --rm -i rabbitmq:4.3-management erl"
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

_VECTORS = Path(__file__).resolve().parents[1] / "tests" / "vectors"
_PROGRAM = Path(__file__).with_suffix(".erl")
_TIMEOUT_S = 300
_OUTPUTS = 20
_LONGEST_WALK = 10_000


def _tagged(term: dict[str, Any]) -> str:
    """Return a term of the JSON's types as the Erlang text of a question."""
    match term["t"]:
        case "bin":
            return f"{{bin,{_binary(term['hex'])}}}"
        case "int":
            return f"{{int,{term['v']}}}"
        case "float":
            return f"{{float,{_binary(term['bits'])}}}"
        case "atom":
            return f"{{atom,{_binary(term['utf8'])}}}"
        case "list" | "tuple" as kind:
            return f"{{{kind},[{','.join(map(_tagged, term['v']))}]}}"
        case "map":
            return f"{{map,[{','.join(f'{{{_tagged(key)},{_tagged(value)}}}' for key, value in term['v'])}]}}"
    raise ValueError(f"unknown type of term: {term['t']!r}")


def _binary(digits: str) -> str:
    return f"<<{','.join(map(str, bytes.fromhex(digits)))}>>"


def _ask(erl: list[str], questions: list[str]) -> list[Any]:
    """Return the answers; Erlang writes lists of integers as JSON does."""
    command = [*erl, "-noshell", "-eval", _PROGRAM.read_text(encoding="utf-8")]
    done = subprocess.run(
        command,
        input="".join(f"{question}.\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(questions):
        sys.exit(
            f"{len(answers)} of {len(questions)} answers received; output of erl: {(done.stderr or done.stdout)[-500:]}"
        )
    return answers


def _again(name: str, file: dict[str, Any], erl: list[str]) -> dict[str, Any]:
    """Return the file's facts as this VM states them."""
    otp, *answers = _ask(erl, ["otp", *_questions(name, file)])
    rows = "terms" if name == "phash2" else "seeds" if name == "exs1024" else "keys"
    new = [_row(name, row, answer) for row, answer in zip(file[rows], answers, strict=True)]
    return {**file, "otp": str(otp), rows: new}


def _questions(name: str, file: dict[str, Any]) -> list[str]:
    match name:
        case "phash2":
            return [f"{{phash2,{_tagged(row['term'])},{file['ranges']}}}" for row in file["terms"]]
        case "exs1024":
            return [f"{{exs1024,{{{','.join(row['seed'])}}},{_OUTPUTS}}}" for row in file["seeds"]]
        case _:
            return [f"{{jump,{_tagged(row['key'])},{file['ns']},{_LONGEST_WALK}}}" for row in file["keys"]]


def _row(name: str, row: dict[str, Any], answer: list[Any]) -> dict[str, Any]:
    match name:
        case "phash2":
            return {**row, "h27": answer[0], "h32": answer[1], "r": answer[2]}
        case "exs1024":
            raw, floats = answer
            return {**row, "raw": [str(word) for word in raw], "uniform": [f"{bits:016x}" for bits in floats]}
        case _:
            return {**row, "seed": str(answer[0]), "b": answer[1], "chain": answer[2]}


def _text(file: dict[str, Any]) -> str:
    """Return the file as it is kept: a line for each fact, so that a change shows as a line."""
    lines = []
    for name, value in file.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(value, separators=(",", ":"))}')
    return "{\n" + ",\n".join(lines) + "}\n"


def main() -> None:
    """Write the files again, or only compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--erl", default="erl", help="the command that starts Erlang (default: erl)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where an answer differs")
    options = parser.parse_args()
    different = False
    for name in ("phash2", "exs1024", "jump"):
        path = _VECTORS / f"{name}.json"
        before = json.loads(path.read_text(encoding="utf-8"))
        after = _again(name, before, shlex.split(options.erl))
        same = {**after, "otp": before["otp"]} == before
        different = different or not same
        print(f"{path.name}: OTP {after['otp']} {'gives the same answers' if same else 'answers otherwise'}")
        if not options.check:
            path.write_text(_text(after), encoding="utf-8")
    sys.exit(options.check and different)


if __name__ == "__main__":
    main()
