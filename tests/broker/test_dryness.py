"""Reading, planning and arranging change nothing on a broker: only GETs are sent, no channel is opened, all is as before."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from quick_rings import quick_prefix
from scripted_api import ScriptedApi

from rabbit_chx import Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import arrange, plan

pytestmark = pytest.mark.broker


def state(management: Management, vhost: str) -> dict[str, Any]:
    """Return all that is in the vhost: the definitions file, and the names of what it leaves out."""
    lists = {
        name: [entry["name"] for entry in management.request("GET", name, vhost)]
        for name in ("exchanges", "queues", "policies")
    }
    return {**lists, "definitions": management.request("GET", "definitions", vhost)}


def generated(seed: int) -> Topology:
    """Return a topology with some of ten queues, in any order, and an exchange and a policy now and then."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    members = chance.sample(range(1, 11), chance.randint(1, 10))
    ring = ", ".join(f'{{ queue = "q{n}", weight = {chance.randint(1, 3)} }}' for n in members)
    text = f'owns = ["q*"]\n[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ring}]\n'
    text += "".join(f'[[queues]]\nname = "q{n}"\n' for n in members)
    if chance.random() < 0.5:
        text += '[[exchanges]]\nname = "other"\n[[policies]]\nname = "p"\npattern = "^q"\ndefinition = { max-length = 5 }\n'
    return Topology.from_toml(text)


def test_many_plans(vhost: RunningBroker) -> None:
    assert vhost.management_url is not None
    management, name = Management(vhost.management_url), ConnectionSettings.from_uri(vhost.url).vhost
    with Broker(vhost.url) as broker:
        broker.declare("x", [(f"q{n}", 1) for n in range(1, 6)])
    before = state(management, name)
    with ScriptedApi(vhost.management_url) as api, Broker(vhost.url, api.url, quick_prefix(vhost)) as broker:
        live = broker.topology()
        changes = 0
        for seed in range(10):
            wanted = generated(seed)
            made = plan(wanted, live)
            plan(arrange(wanted, live), live)
            changes += len(made.changes)
        broker.topology()
        broker.exchange("x")
        broker.ring("x")
        assert changes > 10
        assert {first.partition(" ")[0] for first, _ in api.requests} == {"GET"}
        deadline = time.monotonic() + 60  # a channel that was closed before may still be listed
        while channels := management.request("GET", "vhosts", name, "channels"):
            assert time.monotonic() < deadline, channels
            time.sleep(0.2)
    assert state(management, name) == before
