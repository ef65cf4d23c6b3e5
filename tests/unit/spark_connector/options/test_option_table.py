"""The table of the options."""

from __future__ import annotations

from spark_connector.options.option_table import OPTIONS, OptionValues


def test_every_option_is_in_the_table_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.meaning and option.group for option in OPTIONS)


def test_every_option_has_a_type_and_a_default_that_a_user_could_write() -> None:
    assert list(OptionValues.__annotations__) == [option.name for option in OPTIONS]
    for option in OPTIONS:
        if option.default is not None:
            assert option.kind.value(option.name, option.default) == option.default_value
