"""Images for brokers in Docker."""

from __future__ import annotations

from contextlib import suppress

import pytest
from found_broker import need

from rabbit_chx.testing import NoBrokerError, RunningBroker, docker_broker, in_ci
from rabbit_chx.testing.containers import require_docker


@pytest.mark.broker
@pytest.mark.docker
def test_an_image_that_is_not_to_be_had_is_named() -> None:
    need("docker")
    nowhere = "127.0.0.1:1/no-registry:0"
    with (
        pytest.raises(NoBrokerError, match=f"the image {nowhere} is not here and cannot be pulled"),
        docker_broker(image=nowhere),
    ):
        pass


@pytest.mark.broker
def test_ci_runs_against_a_container(broker: RunningBroker) -> None:
    """Where Docker was set up for it, a quiet fall-back to something else would prove less than it seems."""
    if in_ci():
        with suppress(NoBrokerError):
            require_docker()
            assert broker.origin.startswith("container "), broker.origin
    assert broker.version
