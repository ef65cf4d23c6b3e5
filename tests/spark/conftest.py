"""One real Spark for all tests here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
import pytest
from packaging.version import Version
from pyspark.sql import SparkSession

from rabbit_chx.broker.management import Management

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pika.adapters.blocking_connection import BlockingChannel

    from rabbit_chx.testing import RunningBroker


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the installed PySpark cannot do, and say why."""
    for marker in item.iter_markers("pyspark"):
        needed, reason = marker.args
        if Version(pyspark.__version__) < Version(needed):
            pytest.skip(f"NOT ON PYSPARK {pyspark.__version__}: {reason} needs {needed} or newer")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark on two cores that has not been told of our format."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def broker_user(broker: RunningBroker, vhost_url: str, channel: BlockingChannel) -> Iterator[str]:
    """A user of the test's vhost, with the password `c4nary-password`."""
    assert broker.management_url is not None
    assert channel.is_open
    management = Management(broker.management_url)
    name = vhost_url.rpartition("/")[2]
    management.request("PUT", "users", name, body={"password": "c4nary-password", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management.request("PUT", "permissions", name, name, body=everything)
    yield name
    management.request("DELETE", "users", name)
