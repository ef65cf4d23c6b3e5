"""The names of the package."""

from __future__ import annotations

import pytest

import spark_connector
from rabbit_chx.errors import InputError, RabbitChxError


def test_the_connector_loads_its_names_when_they_are_used() -> None:
    assert {"dry_run", "place", "publish", "queue_for", "batch_publisher"} < set(dir(spark_connector))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = spark_connector.nothing
    assert issubclass(InputError, RabbitChxError)
