"""What a user without ``rabbitmqctl`` is told of a ring is what the broker has, whatever happened to it, or it is not determined.

Each history is a vhost, in which things happen: `ring_histories`. They take turns, so that a restart of the broker is one of many vhosts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from broker_faults import faults_of
from dying_applier import dying_applier
from few_seeds import few_seeds
from ring_histories import RingHistory, X

from rabbit_chx.broker.management import Management
from rabbit_chx.cli.command import ExitCode
from rabbit_chx.errors import NotFoundError
from rabbit_chx.testing import RunningBroker, docker_broker
from tests.parity.conftest import Rabbit

#: `make long WHAT=claims` has a thousand on four releases.
_HISTORIES = int(os.environ.get("CLAIM_HISTORIES", "4"))
_AT_ONCE, _STEPS = 50, 9

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(300 + 30 * _HISTORIES)]

_UNKNOWN = "not determined"


def kill(broker: RunningBroker) -> None:
    faults_of(broker).kill()
    faults_of(broker).start()


def stop(broker: RunningBroker) -> None:
    faults_of(broker).restart()


def stop_app(broker: RunningBroker) -> None:
    broker.run("rabbitmqctl", "-q", "eval", "rabbit:stop(), rabbit:start().")


_WAYS: list[Callable[[RunningBroker], None]] = [kill, stop, stop_app]


class Judge:
    """Compares what is claimed with what is true.

    Attributes:
        seen: the counts of it.
        wrong: the histories that ended in a wrong claim, in words.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []

    def judge_rings(self, history: RingHistory) -> bool | None:
        """Compare the rings that the library tells, which are one; return whether they are right, None if there is none."""
        with history.managed() as broker:
            told = broker.topology().rings.get(X)
            with suppress(NotFoundError):
                alone = broker.ring(X)
                assert told is not None
                assert (alone, alone.bindings, alone.ground) == (told, told.bindings, told.ground)
        if told is None:
            return None
        true = history.truth()
        if told.ground.is_assumed:
            self.seen["likely, and true" if told.buckets == true else "likely, and not"] += 1
            return None
        self.seen["certain"] += 1
        if told.buckets != true:
            self._blame(history, f"{told.provenance} {_runs(told.buckets)}, is {_runs(true)}")
        return told.buckets == true

    def judge_commands(self, history: RingHistory, file: Path) -> None:
        """Compare what some commands say without ``rabbitmqctl`` with what they say with it."""
        file.write_text(history.export())
        for command in _TURNS[self.seen["histories"] % len(_TURNS)]:
            words = [str(file) if word == "FILE" else word for word in command]
            code, said = history.command(*words, reads=False)
            true_code, true = history.command(*words, reads=True)
            if (code, _plain(said)) == (true_code, _plain(true)):
                self.seen[f"{command[0]} {code}"] += 1
            elif _is_open(command[0], code, said) and _findings(said) <= _findings(true):
                self.seen[f"{command[0]} {_UNKNOWN}"] += 1
            else:
                told = f"{code} {_plain(said)}\n    is {true_code} {_plain(true)}"
                self._blame(history, f"{' '.join(command[:2])}: {told}")
        self.seen["histories"] += 1

    def _blame(self, history: RingHistory, what: str) -> None:
        kind = history.hidden
        self.seen[f"wrong: {kind}" if kind else "WRONG"] += 1
        if not kind:
            self.wrong.append("\n".join([what, *history.trail]))


_KEYS = [f"key-{number}" for number in range(50)]
#: What is asked at the end of a history: the commands take turns, because each takes a tenth of a second.
_TURNS = (
    (("check", X), ("show", X), ("repair", X, "--dry-run")),
    (("check", X), ("plan", "FILE"), ("verify", X, "--keys", "key-{0..99}")),
    (("check", X), ("plan", "FILE"), ("route", X, *_KEYS)),
    (("check", X), ("export", X), ("compare", X)),
)
#: How a ring is known, and what follows from that.
_GROUNDS = {
    "provenance",
    "doubt",
    "bindings",
    "next_bucket",
    "checksum",
    "record",
    "written",
    "recorded",
    "fix",
}


def _plain(said: str) -> Any:
    """Return a document without how the ring is known."""
    try:
        return json.loads(
            said, object_hook=lambda entry: {name: entry[name] for name in entry.keys() - _GROUNDS}
        )
    except ValueError:
        return said


def _findings(said: str) -> set[str]:
    """Return what findings name."""
    document = _plain(said)
    found = document.get("findings", ()) if isinstance(document, dict) else ()
    return {f"{each['kind']} {each.get('destination')}" for each in found}


def _is_open(command: str, code: int, said: str) -> bool:
    """Return whether a command says that its answer is not determined."""
    if code in (ExitCode.WRONG_USAGE, ExitCode.PARTLY, ExitCode.REFUSED):
        return True
    words = ('"provenance": "assumed"', '"determined": false', '"order_not_checked": "')
    return (command == "show" or code == ExitCode.DIFFERENCE) and any(word in said for word in words)


def _runs(buckets: Any) -> str:
    return "-" if buckets is None else " ".join(map(str, buckets))


@contextmanager
def twin(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Start another broker of the same release, whose cluster has the same name."""
    with docker_broker(broker.version.rpartition(".")[0]) as other:
        for each in (broker, other):
            assert each.management_url is not None
            Management(each.management_url).put("cluster-name", body={"name": "twins"})
        yield other


def test_what_is_claimed_of_a_ring_is_true_or_not_determined(rabbit: Rabbit, tmp_path: Path) -> None:
    """In a long run some of the vhosts are made again on another broker."""
    judge = Judge()
    if _HISTORIES > _AT_ONCE:
        with twin(rabbit.broker) as other:
            run_histories(range(_AT_ONCE), [rabbit.broker, other], judge, tmp_path)
    for first in range(judge.seen["histories"], _HISTORIES, _AT_ONCE):
        run_histories(range(first, min(first + _AT_ONCE, _HISTORIES)), [rabbit.broker], judge, tmp_path)
    rabbit.count(100 * judge.seen["verify 0"])
    rabbit.note(", ".join(f"{count} {what}" for what, count in sorted(judge.seen.items())))
    assert judge.wrong == [], "\n\n".join(judge.wrong)


def run_histories(numbers: range, brokers: list[RunningBroker], judge: Judge, folder: Path) -> None:
    """Let things happen in some vhosts, in turns, and restart the brokers in between."""
    version = brokers[0].version
    random = Random(f"{version} {numbers}")  # noqa: S311
    restarts = dict(zip(random.sample(range(2, _STEPS - 1), 3), random.sample(_WAYS, 3), strict=True))
    histories = [
        RingHistory(brokers[0], f"history-{n}", Random(f"{version} {n}"), folder, hides=n % 3 == 0)  # noqa: S311
        for n in numbers
    ]
    with few_seeds(), dying_applier(histories[0].site) as applier:
        for history in histories:
            history.applier, history.elsewhere = applier, brokers[-1] if brokers[1:] else None
            history.others = [other for other in histories if other is not history]
        for step in range(_STEPS):
            if way := restarts.get(step):
                for history in histories:
                    history.prepare_restart()
                for broker in brokers:
                    way(broker)
                for history in histories:
                    history.after_restart(way.__name__)
            for history in histories:
                is_own = step not in restarts and history.happen()
                if is_own or step in restarts or step == _STEPS - 1:
                    history.settle(is_known=bool(judge.judge_rings(history)))
        for history in histories:
            judge.judge_commands(history, folder / "topology.toml")
            history.remove()
