"""Nothing that comes from outside is run as code: no `eval`, no pickle of foreign data, no shell.

The rules S of ruff, in `make check`, refuse each of them. Here are the places where a rule is off, and a text that a server evaluates.
"""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.broker.ring_source import eval_expression

ROOT = Path(__file__).resolve().parents[3]
#: S603 runs a list of words. S301 is pickled data of our own: the driver reads what its executors sent, an executor what the driver
#: sent. Spark itself pickles both ways around it.
SWITCHED_OFF = {
    "rabbit_chx/subprocesses.py": {"S603"},
    "spark_connector/executor_functions.py": {"S301", "S603"},
}


def test_each_place_where_a_rule_of_ruff_is_off_is_known() -> None:
    found: dict[str, set[str]] = {}
    for package in ("rabbit_chx", "spark_connector", "pyspark_rabbitmq"):
        for path in (ROOT / package).rglob("*.py"):
            for codes in re.findall(r"# noqa: ([A-Z0-9, ]+)", path.read_text(encoding="utf-8")):
                if off := set(re.findall(r"S\d+", codes)) - {"S101", "S311"}:
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).update(off)
    assert found == SWITCHED_OFF


@given(st.text(), st.text())
def test_no_letter_of_a_name_gets_into_the_expression_for_rabbitmqctl(vhost: str, exchange: str) -> None:
    vhost, exchange = (name.encode("utf-8", "ignore").decode() for name in (vhost, exchange))
    with_names, without = eval_expression(vhost, exchange), eval_expression("", "")
    assert re.sub("[0-9, ]", "", with_names) == re.sub("[0-9, ]", "", without)
