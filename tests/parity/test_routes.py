"""Every message that a real broker takes is found where the mirror says, on every release."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pytest
import scipy  # type: ignore[import-untyped]  # it loads stats when it is used
from routes.catalogue import EXAMPLE, SCENARIOS, scenarios_of
from routes.live import Stage, read_rings
from routes.recorded import Routed, save
from routes.scenario import CHX, Scenario, predict, replay

from rabbit_chx.routing import Destination, HashRing
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

VECTORS = Path(__file__).parents[1] / "vectors"
CLIENTS = ("pika", "aio-pika", "pamqp")
CLIENTS_OF_AMQP_10 = ("rabbitmq-amqp-python-client", "python-qpid-proton")
FIRST_WITH_AMQP_10 = (4, 0, 0)
UNLIKELY = 0.001


@pytest.fixture(scope="session")
def stages(rabbit: Rabbit) -> Iterator[dict[str, Stage]]:
    """All scenarios, each after its steps: they are done beforehand, so that one command can read all rings."""
    with ExitStack() as stack:
        yield {
            scenario.name: stack.enter_context(Stage(rabbit.broker, scenario))
            for scenario in scenarios_of(rabbit.release)
        }


@pytest.fixture(scope="session")
def rings(rabbit: Rabbit, stages: dict[str, Stage]) -> dict[str, HashRing]:
    """Their rings, as the broker has them."""
    return read_rings(rabbit.broker, stages.values(), rabbit.release)


@pytest.fixture(scope="session")
def routed(
    rabbit: Rabbit, request: pytest.FixtureRequest, rings: dict[str, HashRing]
) -> Iterator[dict[str, Routed]]:
    """What the broker did, by scenario; written to a file at the end if that is asked for."""
    done: dict[str, Routed] = {}
    yield done
    if request.config.getoption("--record-routes") and len(done) == len(scenarios_of(rabbit.release)):
        assert rings
        save(VECTORS / f"routes-{rabbit.release.version}.json.gz", _origin(rabbit), list(done.values()))


def _origin(rabbit: Rabbit) -> dict[str, str]:
    clients = CLIENTS if rabbit.release.numbers < FIRST_WITH_AMQP_10 else (*CLIENTS, *CLIENTS_OF_AMQP_10)
    erlang = rabbit.broker.run("rabbitmqctl", "-q", "eval", "erlang:system_info(otp_release).")
    return {
        "version": rabbit.release.version,
        "store": rabbit.release.store,
        "from": rabbit.broker.origin,
        "erlang": erlang.strip().strip('"'),
        "python": platform.python_version(),
        **{name: version(name) for name in clients},
    }


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_message_is_in_the_predicted_queue(
    rabbit: Rabbit,
    stages: dict[str, Stage],
    rings: dict[str, HashRing],
    routed: dict[str, Routed],
    scenario: Scenario,
) -> None:
    if rabbit.release.numbers < scenario.since:
        pytest.skip(f"RabbitMQ {rabbit.release.version} has no AMQP 1.0 of its own")
    ring = rings.get(scenario.name)
    if ring is not None:
        replayed = replay(scenario, rabbit.release)
        assert replayed is None or replayed == ring
    found = stages[scenario.name].route()
    predicted = predict(scenario, ring, rabbit.release)
    assert mismatches(scenario, found, predicted) == []
    rabbit.count(len(found))
    routed[scenario.name] = Routed(scenario, ring, found)


def test_the_example_falls_as_the_exact_shares_say(
    rings: dict[str, HashRing], routed: dict[str, Routed]
) -> None:
    if EXAMPLE.name not in routed:
        pytest.fail("the example was not routed: run test_every_message_is_in_the_predicted_queue with it")
    counts = Counter(routed[EXAMPLE.name].found)
    expected = [share * counts.total() for share in rings[EXAMPLE.name].shares().values()]
    found = [counts[queue] for queue in rings[EXAMPLE.name].shares()]
    assert scipy.stats.chisquare(found, expected).pvalue > UNLIKELY


def test_what_is_not_determined_is_little(rabbit: Rabbit) -> None:
    """The mirror may not shirk: the steps determine the ring."""
    unknown = {
        scenario.name
        for scenario in SCENARIOS
        if scenario.type == CHX and replay(scenario, rabbit.release) is None
    }
    assert unknown == set()


def mismatches(
    scenario: Scenario, found: list[Destination | None], predicted: list[Destination | None]
) -> list[str]:
    """The first few, in words."""
    wrong = [number for number, pair in enumerate(zip(found, predicted, strict=True)) if pair[0] != pair[1]]
    told = [
        f"message {number} of {scenario.name} is in {found[number]}, predicted {predicted[number]}"
        for number in wrong[:5]
    ]
    return told and [f"{len(wrong)} mismatches", *told]
