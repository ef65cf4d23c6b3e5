"""Real brokers for tests, the demo and the examples; and whether a handler keeps order.

`find_broker` takes the broker that the environment names, or starts one. `docker_broker` and `local_broker`
start one of their kind, and `docker_cluster` starts several nodes. What was started is removed when its block
ends, and also when this process is killed. The names are loaded when they are first used, so that the pytest
plugin costs a test run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.errors import NoBrokerError
    from rabbit_chx.testing.broker_search import find_broker
    from rabbit_chx.testing.cluster import RunningCluster, docker_cluster
    from rabbit_chx.testing.containers import docker_broker, start_docker_broker
    from rabbit_chx.testing.local_server import local_broker, start_local_broker
    from rabbit_chx.testing.needs import in_ci, need, skip_unless_ci
    from rabbit_chx.testing.order_checker import OrderChecker, OrderFault, OrderReport
    from rabbit_chx.testing.running_broker import RunningBroker, temporary_vhost

_HOMES = {
    "NoBrokerError": "rabbit_chx.errors",
    "OrderChecker": "rabbit_chx.testing.order_checker",
    "OrderFault": "rabbit_chx.testing.order_checker",
    "OrderReport": "rabbit_chx.testing.order_checker",
    "RunningBroker": "rabbit_chx.testing.running_broker",
    "RunningCluster": "rabbit_chx.testing.cluster",
    "docker_broker": "rabbit_chx.testing.containers",
    "docker_cluster": "rabbit_chx.testing.cluster",
    "find_broker": "rabbit_chx.testing.broker_search",
    "in_ci": "rabbit_chx.testing.needs",
    "local_broker": "rabbit_chx.testing.local_server",
    "need": "rabbit_chx.testing.needs",
    "skip_unless_ci": "rabbit_chx.testing.needs",
    "start_docker_broker": "rabbit_chx.testing.containers",
    "start_local_broker": "rabbit_chx.testing.local_server",
    "temporary_vhost": "rabbit_chx.testing.running_broker",
}

__all__ = [
    "NoBrokerError",
    "OrderChecker",
    "OrderFault",
    "OrderReport",
    "RunningBroker",
    "RunningCluster",
    "docker_broker",
    "docker_cluster",
    "find_broker",
    "in_ci",
    "local_broker",
    "need",
    "skip_unless_ci",
    "start_docker_broker",
    "start_local_broker",
    "temporary_vhost",
]


__getattr__, __dir__ = lazy(__name__, _HOMES)
