"""The tables of the documents."""

from __future__ import annotations

import tables

from rabbit_chx.routing.rules import RULES


def test_the_table_has_the_releases_of_each_rule() -> None:
    first, *rows = tables.rules().splitlines()[2:]
    assert first == "| routing key | all | the routing key's bytes through phash2; CC and BCC do not count |"
    cells = [row.split(" | ") for row in rows]
    releases = {cell[0].removeprefix("| "): cell[1] for cell in cells}
    assert releases["second binding of a destination"] == "before 3.10.6"
    assert releases["weight above 10,000"] == "from 4.2.6"
    assert releases["x-modulus-hash"] == "from 4.3.0"
    assert ["| full restart", "from 3.13.0 (Khepri)"] in [cell[:2] for cell in cells]
    assert 1 + len(rows) == len(RULES)
