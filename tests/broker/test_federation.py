"""A federation link in a ring, on a real broker with both vhosts: it is left out of files, found, and never cut without permission.

fire/publisher/test_queue_removal.py changes such a ring under load.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from federated import QUEUES, ROWS, TEXT, federate, federated_vhosts, opened

from rabbit_chx import Topology
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import check, plan

pytestmark = [pytest.mark.broker, pytest.mark.own_broker]


FRONT = """
[[exchanges]]
name = "front"
type = "fanout"
[[bindings]]
source = "front"
exchange = "h"
"""


@pytest.mark.slow
def test_a_link_takes_its_share_of_the_keys_unless_it_is_behind_an_exchange_of_its_own(
    broker: RunningBroker,
    vhost: RunningBroker,
    tmp_path: Path,
    answer: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with federated_vhosts(broker, vhost) as federated:
        up, link = federated.up, federated.link
        file = tmp_path / "topology.toml"
        at = ["--url", up.url, "--management-url", str(up.management_url)]
        at += ["--ring-via", " ".join(up.ring_via or ())]
        assert main(["export", *at]) == 0
        said = capsys.readouterr()
        assert "federation" not in said.out
        assert f"left out: exchanges of federation links: {link.name}" in said.err
        file.write_text(said.out)

        assert answer("plan", str(file), *at)["changes"] == []
        assert answer("check", str(file), "--without", "consumers", *at)["findings"] == []
        with opened(up) as live:
            share = live.ring("h").shares()[link]
        file.write_text(TEXT)
        assert main(["apply", str(file), "--yes", *at]) == 0
        capsys.readouterr()
        stayed, came = federated.counted()
        assert stayed + came == ROWS
        assert came == pytest.approx(share * ROWS, abs=40)

        wanted = Topology.from_toml(TEXT + FRONT)
        for side in (up, federated.down):
            with opened(side) as live:
                live.apply(plan(wanted, live.topology()))
        federate(federated.down, "front")
        with opened(up) as live:

            def is_linked() -> bool:
                now = live.topology()
                bound = [binding.destination for binding in now.bindings if binding.source == "front"]
                return len(bound) == 2 and now.rings["h"].destinations == QUEUES

            until(is_linked, "the link is behind the new exchange alone", every_s=1)
            now = live.topology()
            found = check(now, wanted).findings
            assert {finding.kind for finding in found} <= {"no-consumer"}, "nobody consumes here"
            assert plan(wanted, now).changes == ()
            gone = plan(Topology(owns=("front",)), now).refused(allow_delete=True)
            assert [refusal.kind for refusal in gone] == ["unlink"]
        assert federated.counted("front", 2 * ROWS) == [ROWS, ROWS]
