"""Nothing that comes from outside is run as code: no `eval`, no pickle of foreign data, no shell."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.broker.ring_source import eval_expression

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted(
    path
    for package in ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
    for path in (ROOT / package).rglob("*.py")
)
BUILTINS = {"eval", "exec", "compile", "__import__", "breakpoint"}
CALLS = {
    f"{module}.{name}"
    for module, names in {
        "os": "system popen",
        "subprocess": "getoutput getstatusoutput",
        "asyncio": "create_subprocess_shell",
        **dict.fromkeys(("pickle", "cloudpickle", "dill", "joblib", "marshal"), "load loads Unpickler"),
        "shelve": "open",
        **dict.fromkeys(("numpy", "np"), "load"),
        **dict.fromkeys(("pandas", "pd"), "read_pickle"),
        "yaml": "load unsafe_load",
        "tempfile": "mktemp",
        "code": "interact",
        "runpy": "run_path run_module",
    }.items()
    for name in names.split()
}
#: What is pickled data of our own. The driver reads what its executors sent, an executor what the driver sent: Spark itself
#: pickles both ways around it, so who can change it runs code there anyway.
KNOWN = {("spark_connector/executor_functions.py", "pickle.loads", 2)}
#: Rules of ruff on the same; where one is switched off, somebody has looked: S603 runs a list of words.
LOOKED_AT = {
    "rabbit_chx/broker/ring_source.py": {"S603"},
    "rabbit_chx/connection/tokens.py": {"S603"},
    "rabbit_chx/testing/running_broker.py": {"S603"},
    "spark_connector/executor_functions.py": {"S301", "S603"},
}


def called(source: str) -> list[str]:
    """The calls in a source that could run what comes from outside, by name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [name for alias in node.names if (name := f"{node.module}.{alias.name}") in CALLS]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.removeprefix("builtins.") in BUILTINS or name in CALLS or name.startswith("os.exec"):
            found.append(name)
        if any(word.arg == "shell" and not is_false(word.value) for word in node.keywords):
            found.append(f"{name}(shell=)")
        if (
            name.startswith("subprocess.")
            and node.args
            and isinstance(node.args[0], (ast.Constant, ast.JoinedStr))
        ):
            found.append(f"{name}(text)")
    return found


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


@pytest.mark.parametrize(
    "source",
    [
        "eval(x)",
        "exec(x)",
        "builtins.eval(x)",
        "import pickle\npickle.loads(x)",
        "from pickle import loads",
        "os.system(x)",
        "os.execv(x, y)",
        "subprocess.run(x, shell=True)",
        "subprocess.run(x, shell=y)",
        "subprocess.run(f'ls {x}')",
        "yaml.load(x)",
    ],
)
def test_what_runs_foreign_code_is_seen(source: str) -> None:
    assert called(source)


def test_what_runs_no_foreign_code_is_not() -> None:
    assert not called("re.compile(x)\nself.eval(x)\nsubprocess.run([x], shell=False)\npickle.dumps(x)")


def test_our_sources_run_no_foreign_code() -> None:
    found = set()
    for path in SOURCES:
        calls = called(path.read_text(encoding="utf-8"))
        found |= {(path.relative_to(ROOT).as_posix(), name, calls.count(name)) for name in calls}
    assert found == KNOWN


def test_each_exception_from_the_rules_of_ruff_is_known() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for codes in re.findall(r"# noqa: ([A-Z0-9, ]+)", path.read_text(encoding="utf-8")):
            looked_at = {code for code in re.findall(r"S\d+", codes) if code not in {"S101", "S311"}}
            if looked_at:
                found.setdefault(path.relative_to(ROOT).as_posix(), set()).update(looked_at)
    assert found == LOOKED_AT


@given(st.text(), st.text())
def test_no_letter_of_a_name_gets_into_the_expression_for_rabbitmqctl(vhost: str, exchange: str) -> None:
    vhost, exchange = (name.encode("utf-8", "ignore").decode() for name in (vhost, exchange))
    with_names, without = eval_expression(vhost, exchange), eval_expression("", "")
    assert re.sub("[0-9, ]", "", with_names) == re.sub("[0-9, ]", "", without)
