"""Arguments without an effect, in each release."""

from __future__ import annotations

from rabbit_chx import Release, Topology
from rabbit_chx.topology import LiveTopology, plan

NEWER, NEWEST = Release("4.4.0"), Release("4.3.6")
#: Arguments that 4.4 uses, and no release before it.
OF_4_4 = """
[[queues]]
name = "q"
type = "quorum"
arguments = { x-member-placement-tag = "fast" }
[[queues]]
name = "s"
type = "stream"
arguments = { x-stream-initial-offset = 5 }
"""


def test_what_a_newer_release_may_use_is_not_called_ignored() -> None:
    wanted = Topology.from_toml(OF_4_4, release=NEWER)
    told = wanted.ignored_arguments(NEWER)
    assert len(told) == 2
    for sentence in told:
        assert "which RabbitMQ 4.4.0 is not known to use" in sentence
        assert "4.4.0 ignores" not in sentence
        assert "remove" not in sentence
    planned = plan(wanted, LiveTopology(release=NEWER))
    assert planned.refusals == ()
    for sentence in wanted.ignored_arguments(NEWEST):
        assert "which RabbitMQ 4.3.6 ignores" in sentence
    for sentence in wanted.ignored_arguments():
        assert "which RabbitMQ up to 4.3.6 ignores" in sentence
