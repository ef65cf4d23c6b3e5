"""Simulate many seeds on all cores: `make long WHAT=simulate`. A seed that shows a fault becomes a regression file.

python tests/simulation/explore.py --seeds 100000
python tests/simulation/explore.py --seed 851 --fewest 20 --most 1000    # one of them again, told in full
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from simulated_run import Outcome, simulate
from simulated_scenarios import scenario_of

REGRESSIONS = Path(__file__).parent / "regressions"
_AT_ONCE = 50


class Figures(Counter[str]):
    """What many runs came to."""

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        scenario, report = outcome.scenario, outcome.report
        self["runs"] += 1
        self["rows"] += scenario.program.rows
        self["rows confirmed"] += report.confirmed
        self["sent again after a loss"] += report.republished
        self["sent again after a refusal"] += report.retried
        self["connections"] += outcome.connections
        self["simulated seconds"] += round(outcome.seconds)
        self["runs that must complete"] += scenario.must_complete
        self["runs with an error"] += bool(outcome.errors)
        if outcome.verdict is not None:
            self["found twice"] += outcome.verdict.duplicated
            self["lost"] += outcome.verdict.faults.get("lost", 0)
        self["runs with a finding"] += bool(outcome.faults)
        self.update(f"planned: {fault.kind}" for fault in scenario.faults)
        self.update(f"finding: {kind}" for kind in outcome.kinds)


def explore(job: tuple[int, int, int]) -> tuple[Figures, list[str]]:
    """Simulate some seeds from the first of `job` on; return the figures, and the regression files of the faults."""
    first, fewest, most = job
    figures, found = Figures(), []
    for seed in range(first, first + _AT_ONCE):
        outcome = simulate(scenario_of(seed, fewest, most))
        figures.add(outcome)
        if outcome.faults:
            story = "; ".join(f"{kind}: {words}" for kind, words in outcome.faults)
            path = REGRESSIONS / f"seed-{seed}-{fewest}-{most}.json"
            path.write_text(replace(outcome.scenario, story=story).to_json() + "\n", encoding="utf-8")
            found.append(f"{path.name}: {story[:300]}")
    return figures, found


def main() -> int:
    """Simulate, and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100_000, help="how many")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first of them")
    parser.add_argument("--fewest", type=int, default=100, help="the fewest rows of a run")
    parser.add_argument("--most", type=int, default=2000, help="the most rows of a run")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="only this one")
    given = parser.parse_args()
    if given.seed is not None:
        outcome = simulate(scenario_of(given.seed, given.fewest, given.most))
        print(outcome.scenario.to_json(), outcome, sep="\n")
        return bool(outcome.faults)
    began, figures = time.monotonic(), Figures()
    jobs = [
        (first, given.fewest, given.most) for first in range(given.first, given.first + given.seeds, _AT_ONCE)
    ]
    with Pool(given.processes) as pool:
        for some, found in pool.imap_unordered(explore, jobs):
            figures.update(some)
            print(
                f"\r{figures['runs']:,} of {given.seeds:,} seeds, {figures['rows']:,} rows",
                end="",
                flush=True,
            )
            for words in found:
                print(f"\n{words}", flush=True)
    print(f"\n{time.monotonic() - began:,.0f} s")
    for what, count in sorted(figures.items()):
        print(f"{count:>15,} {what}")
    return bool(figures["runs with a finding"])


if __name__ == "__main__":
    sys.exit(main())
