"""Functions on their way to executors."""

from __future__ import annotations

import pickle

from spark_connector.executor_functions import OnExecutor


def test_a_function_on_its_way_shows_no_arguments() -> None:
    shipped = OnExecutor(pickle.dumps, "c4nary")
    assert "c4nary" not in repr(shipped)
    assert shipped() == pickle.dumps("c4nary")
