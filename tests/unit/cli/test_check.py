"""The options of a check."""

from __future__ import annotations

from rabbit_chx.analysis.finding_kinds import CHECK_KINDS
from rabbit_chx.cli.check import check_broker


def test_the_options_that_look_for_a_kind_exist() -> None:
    declared = {text for parameter in check_broker.params for text in parameter.opts}
    assert {kind.argument for kind in CHECK_KINDS.values() if kind.argument} == {"observed"} & {
        text.removeprefix("--") for text in declared
    }
