"""A scenario is a value, a run of it is the same each time, and whatever it says goes wrong makes a difference."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from simulated_run import Outcome, simulate
from simulated_scenarios import Kind, Scenario, doubtful, scenario_of


def test_a_scenario_is_the_same_after_a_file() -> None:
    for seed in range(100):
        scenario = scenario_of(seed)
        assert Scenario.from_json(scenario.to_json()) == scenario


def test_a_run_is_the_same_each_time() -> None:
    for seed in range(20):
        assert course(simulate(scenario_of(seed))) == course(simulate(scenario_of(seed)))


def test_every_kind_of_fault_makes_a_difference() -> None:
    unseen = set(get_args(Kind))
    for seed in range(300):
        drawn = scenario_of(seed, most=200)
        for scenario in (drawn, doubtful(drawn)):
            for kind in unseen & {fault.kind for fault in scenario.faults}:
                others = tuple(fault for fault in scenario.faults if fault.kind != kind)
                if course(simulate(scenario)) != course(simulate(replace(scenario, faults=others))):
                    unseen.remove(kind)
    assert not unseen


def course(outcome: Outcome) -> tuple[object, ...]:
    return str(outcome), outcome.seconds, outcome.connections, outcome.carried
