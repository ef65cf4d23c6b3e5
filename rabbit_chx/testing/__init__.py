"""Brokers for tests and examples, and checks of routing and order.

`find_broker` takes the broker that the environment names, or starts one in Docker, as `docker_broker` does. What was started is removed
when its block ends, and by testcontainers also when this process is killed. The names are loaded when they are first used, so that the
pytest plugin costs a test run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.errors import NoBrokerError as NoBrokerError
    from rabbit_chx.testing.containers import docker_broker as docker_broker
    from rabbit_chx.testing.containers import find_broker as find_broker
    from rabbit_chx.testing.containers import in_ci as in_ci
    from rabbit_chx.testing.containers import skip_unless_ci as skip_unless_ci
    from rabbit_chx.testing.containers import start_docker_broker as start_docker_broker
    from rabbit_chx.testing.order_checker import OrderChecker as OrderChecker
    from rabbit_chx.testing.order_checker import OrderFault as OrderFault
    from rabbit_chx.testing.order_checker import OrderReport as OrderReport
    from rabbit_chx.testing.order_checker import assert_parity as assert_parity
    from rabbit_chx.testing.running_broker import RunningBroker as RunningBroker
    from rabbit_chx.testing.running_broker import temporary_vhost as temporary_vhost

_NAMES = {
    "rabbit_chx.errors": ["NoBrokerError"],
    "rabbit_chx.testing.containers": [
        "docker_broker",
        "find_broker",
        "in_ci",
        "skip_unless_ci",
        "start_docker_broker",
    ],
    "rabbit_chx.testing.order_checker": ["OrderChecker", "OrderFault", "OrderReport", "assert_parity"],
    "rabbit_chx.testing.running_broker": ["RunningBroker", "temporary_vhost"],
}

__all__ = [name for names in _NAMES.values() for name in names]

__getattr__, __dir__ = lazy(__name__, _NAMES)
