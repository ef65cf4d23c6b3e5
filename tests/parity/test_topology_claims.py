"""What a user without ``rabbitmqctl`` is told of a ring is what the broker has, whatever happened to it, or it is not determined.

Each history is a vhost, in which things happen: `ring_histories`. They take turns, so that a restart of the broker is one of many vhosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ring_claims import AT_ONCE, HISTORIES, Judge, run_histories

from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker, docker_broker
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(300 + 30 * HISTORIES)]


@contextmanager
def twin(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Start another broker of the same release, whose cluster has the same name."""
    with docker_broker(broker.version.rpartition(".")[0]) as other:
        for each in (broker, other):
            assert each.management_url is not None
            Management(each.management_url).put("cluster-name", body={"name": "twins"})
        yield other


def test_what_is_claimed_of_a_ring_is_true_or_not_determined(rabbit: Rabbit, tmp_path: Path) -> None:
    """In a long run some of the vhosts are made again on another broker of the same name, and asked with addresses of both."""
    judge = Judge()
    if HISTORIES > AT_ONCE:
        with twin(rabbit.broker) as other:
            run_histories(range(AT_ONCE), (rabbit.broker,), judge, tmp_path, other=other)
    for first in range(judge.seen["histories"], HISTORIES, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, HISTORIES))
        run_histories(numbers, (rabbit.broker,), judge, tmp_path)
    rabbit.count(100 * judge.seen["verify 0"])
    rabbit.note(judge.summary)
    assert judge.wrong == [], "\n\n".join(judge.wrong)
