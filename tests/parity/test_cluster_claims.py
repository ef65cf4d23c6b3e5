"""What any nodes of a cluster tell of a ring is what the cluster has, or it is not determined, whichever node restarts or is down.

The addresses are those of any nodes, as behind a load balancer. At first the cluster has no name, so that each node tells its own.
"""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stderr
from pathlib import Path
from random import Random

import pytest
from broker_faults import faults_of
from ring_claims import OF_CLUSTERS, Judge, run_histories
from ring_histories import RingHistory

from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology.objects import MARK
from tests.parity.conftest import Rabbits

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(600 + 30 * OF_CLUSTERS)]

#: From 4.0 on a queue whose node is down may be deleted and declared again on another node.
_FIRST_THAT_MAKES_IT_AGAIN = (4, 0, 0)
_FILE = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{members}]
[[queues]]
name = "q{{1..2}}"
"""


def test_what_any_nodes_claim_of_a_ring_is_true_or_not_determined(rabbits: Rabbits, tmp_path: Path) -> None:
    judge, cluster = Judge(), rabbits.cluster
    run_histories(range(OF_CLUSTERS), cluster.nodes, judge, tmp_path, restarted=cluster.wait_until_together)
    rabbits.count(100 * judge.seen["verify 0"])
    rabbits.note(f"of a cluster: {judge.summary}")
    assert judge.wrong == [], "\n\n".join(judge.wrong)


def test_an_apply_says_that_the_node_of_the_mark_is_down_or_makes_it_again(
    rabbits: Rabbits, tmp_path: Path
) -> None:
    home, other = rabbits.cluster.in_vhost("down")[:2]
    there = RingHistory((other,), "down", Random(1), tmp_path, hides=True)  # noqa: S311  # its queues are on the other node
    file, said = tmp_path / "topology.toml", io.StringIO()

    def apply(node: RunningBroker, *queues: str) -> int:
        file.write_text(_FILE.format(members=", ".join(f'{{ queue = "{queue}" }}' for queue in queues)))
        addresses = ["--url", node.url, "--management-url", str(node.management_url)]
        via = ["--ring-via", shlex.join(there.site.source)]
        with redirect_stderr(said):
            return main(["apply", str(file), "--yes", "--allow", "moved=1", *addresses, *via])

    there.site.channel.exchange_delete("x")
    assert apply(home, "q1", "q2") == 0, said.getvalue()
    faults_of(home).kill()
    try:
        code = apply(other, "q2", "q1")
    finally:
        faults_of(home).start()
        rabbits.cluster.wait_until_together()
    text = said.getvalue()
    if rabbits.release.numbers >= _FIRST_THAT_MAKES_IT_AGAIN:
        assert (code, text, there.truth()) == (0, "", ("q2", "q1"))
    else:
        assert (code, MARK in text, " is down" in text, "configure" in text) == (69, True, True, False), text
    assert Judge().judge_rings(there) is not False
    there.remove()
