"""The table of the options."""

from __future__ import annotations

from spark_connector.options.option_table import OPTIONS


def test_every_option_is_in_the_table_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.meaning and option.group for option in OPTIONS)
