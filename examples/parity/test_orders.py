"""Is each of our orders in the queue that we predict? Run this with `pytest examples/parity --chx-broker 4.3`."""

from rabbit_chx import Topology
from rabbit_chx.testing import RunningBroker, assert_parity

TOPOLOGY = Topology.from_toml("""
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..2}", weight = 1 }, { queue = "orders.3", weight = 2 }]

[[queues]]
name = "orders.{1..3}"
""")
KEYS = [f"customer-{number}" for number in range(1_000)]


def test_each_order_is_where_we_predict(chx_broker: RunningBroker) -> None:
    assert_parity(TOPOLOGY, KEYS, broker=chx_broker)
