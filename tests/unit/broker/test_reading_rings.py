"""One exchange and its vhost tell the same ring, whatever others have done to it and whatever the user may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_broker import ModelBroker
from model_client import ModelClient

from rabbit_chx import HashRing, Release, Topology, errors
from rabbit_chx.broker.applying import Permission
from rabbit_chx.broker.reading import read_release, read_ring
from rabbit_chx.broker.recording import record_rings
from rabbit_chx.records.ring_records import RecordedStart, RingRecord, make_record
from rabbit_chx.topology import BindingDefinition, plan
from rabbit_chx.topology.objects import RingMember, is_own

FILE = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q{1..3}" }]
[[exchanges]]
name = "y"
type = "x-consistent-hash"
ring = [{ queue = "q2", weight = 2 }, { queue = "q1" }]
[[queues]]
name = "q{1..4}"
"""
RELEASES = [Release("3.10.8"), Release("4.0.5", store="mnesia"), Release("4.3.6")]


@dataclass
class Site:
    """A broker and what its user may not read."""

    model: ModelBroker
    denied: set[str]
    source: bool = False
    file_records: dict[str, RingRecord] = field(default_factory=dict)

    def client(self, *, source: bool | None = None) -> ModelClient:
        client = _Client(self, has_source=self.source if source is None else source)
        client.file_records = self.file_records
        return client


class _Client(ModelClient):
    def __init__(self, site: Site, *, has_source: bool) -> None:
        super().__init__(site.model, has_source=has_source)
        self._site = site

    def _listed(self, kind: str, *path: str) -> Any:
        if kind in self._site.denied:
            raise errors.AccessRefusedError("the tag is missing", reply_code=403)
        return super()._listed(kind, *path)


def steps_of(draw: st.DrawFn) -> Iterator[str]:
    steps = ["bind", "bind", "unbind", "unbind", "apply", "record", "restart", "file"]
    yield from draw(st.lists(st.sampled_from(steps), max_size=8))


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Return a broker after changes by this program and by others."""
    release = draw(st.sampled_from(RELEASES))
    denied = draw(st.sets(st.sampled_from(["nodes", "feature-flags", "vhosts"])))
    wanted = Topology.from_toml(FILE)
    site = Site(ModelBroker(release), denied)
    if draw(st.booleans()):
        site.model = ModelBroker.holding(wanted, release)
    for step in ("apply", *steps_of(draw)):
        with suppress(errors.RabbitChxError):
            _do(step, site, wanted, draw)
    site.source = draw(st.integers(0, 4)) == 0
    return site


def _do(step: str, site: Site, wanted: Topology, draw: st.DrawFn) -> None:
    model, client = site.model, site.client(source=draw(st.booleans()))
    members = [binding for binding in model.bindings if binding.source in model.rings]
    if step == "bind":
        exchange, queue = draw(st.sampled_from(sorted(model.rings))), f"q{draw(st.integers(1, 4))}"
        arguments = draw(st.sampled_from([{}, {"by": "others"}]))
        binding = BindingDefinition(exchange, queue, draw(st.sampled_from("112")), arguments)
        if binding not in members:
            model.bind(binding)
    elif step == "unbind" and members:
        model.unbind(draw(st.sampled_from(members)))
    elif step == "apply":
        client.applied(plan(wanted, client.live()), Permission(1.0, delete=True))
    elif step == "record":
        record_rings(client.live().rings, client)
    elif step == "file" and "x" in model.rings:
        ring = model.rings["x"]
        recorded_start = RecordedStart("rabbit@model", draw(st.sampled_from(["/", "other"])))
        site.file_records["x"] = replace(
            make_record("x", ring, starmap(RingMember, ring.bindings or ())), recorded_start=recorded_start
        )
    elif step == "restart":
        _restart(site)


def _restart(site: Site) -> None:
    """Restart the broker: the transient message of the mark is gone, and Mnesia has another order."""
    model = site.model
    model.mark_messages = min(model.mark_messages, 1)
    if model.release.store == "mnesia":
        for name, ring in model.rings.items():
            model.rings[name] = HashRing.from_bindings(sorted(ring.bindings or ()), model.release)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(sites())
def test_one_exchange_and_its_vhost_tell_the_same_ring(site: Site) -> None:
    rings = site.client().live().rings
    assert rings.keys() == {name for name in site.model.rings if not is_own(name)}
    for name, ring in rings.items():
        alone = read_ring(site.client(), name, read_release(site.client()))
        assert (alone, alone.bindings, alone.order, alone.end_known) == (
            ring,
            ring.bindings,
            ring.order,
            ring.end_known,
        )


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_second_binding_that_differs_in_arguments_only_is_not_taken_away_in_an_unknown_order(
    release: Release,
) -> None:
    """An apply of the unchanged file once did that, and claimed the record of before."""
    site, wanted = Site(ModelBroker(release), set()), Topology.from_toml(FILE)
    client = site.client(source=True)
    client.applied(plan(wanted, client.live()), Permission(1.0))
    site.model.bind(BindingDefinition("x", "q1", "1", {"by": "others"}))
    live = site.client().live()
    assert live.rings["x"].order.doubt.endswith("other software has bound q1=1 with arguments since")
    assert "the order of x is unknown" in plan(wanted, live).refusals[0].message
