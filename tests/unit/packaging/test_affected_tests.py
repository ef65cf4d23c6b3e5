"""Which unit tests `make quick` runs."""

from __future__ import annotations

from affected_tests import affected_tests


def test_the_tests_that_name_a_changed_module_are_affected() -> None:
    tests = affected_tests(["rabbit_chx/plot.py", "tests/unit/erlang/test_phash2.py", "examples/flights.py"])
    assert "tests/unit/test_plot.py" in tests
    assert "tests/unit/erlang/test_phash2.py" in tests
    assert not any(name.startswith("tests/unit/streams") for name in tests)


def test_nothing_is_affected_by_a_program() -> None:
    assert affected_tests(["examples/flights.py"]) == []
