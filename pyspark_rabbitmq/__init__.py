"""Lets Spark find ``format("rabbitmq")`` without `register`.

Spark imports every top-level package named ``pyspark_*`` and takes its `DefaultSource`. A package that raises
hides all the others. So this one never raises: it offers nothing if the connector cannot be loaded.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from spark_connector.datasource import RabbitMQDataSource as DefaultSource

    __all__ = ["DefaultSource"]
