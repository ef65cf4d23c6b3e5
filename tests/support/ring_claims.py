"""What a user without ``rabbitmqctl`` is told of the rings of random histories is compared with what the broker has."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from broker_faults import faults_of
from dying_applier import dying_applier
from few_seeds import few_seeds
from ring_histories import TWO_BROKERS, RingHistory, X

from rabbit_chx.broker.management import Management
from rabbit_chx.cli.command import ExitCode
from rabbit_chx.errors import NotFoundError, UnknownOrderError
from rabbit_chx.testing import RunningBroker

#: `make long WHAT=claims` has a thousand on three releases.
HISTORIES = int(os.environ.get("CLAIM_HISTORIES", "4"))
OF_CLUSTERS = min(HISTORIES, 30)
#: How many vhosts share the restarts of a broker.
AT_ONCE = 50
_STEPS = 9
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

    @property
    def summary(self) -> str:
        """The counts, in words."""
        return ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))

    def judge_rings(self, history: RingHistory) -> bool | None:
        """Compare the rings that the library tells, which are one; return whether they are right, None if there is none."""
        with history.managed() as broker:
            told = broker.topology().rings.get(X)
            with suppress(NotFoundError, UnknownOrderError):
                alone = broker.ring(X)
                assert told is not None
                assert (alone, alone.bindings, alone.order) == (told, told.bindings, told.order)
        if told is None:
            return None
        true = history.truth()
        if not told.order.is_known:
            self.seen["not known"] += 1
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
            code, said, _ = history.command(*words, reads=False)
            true_code, true, _ = history.command(*words, reads=True)
            assert TWO_BROKERS not in f"{said} {true}"
            if (code, _plain(said)) == (true_code, _plain(true)):
                self.seen[f"{command[0]} {code}"] += 1
            elif _is_open(command[0], code, said) and _findings(said) <= _findings(true):
                self.seen[f"{command[0]} {_UNKNOWN}"] += 1
            else:
                told = f"{code} {_plain(said)}\n    is {true_code} {_plain(true)}"
                self._blame(history, f"{' '.join(command[:2])}: {told}")
        if history.elsewhere is not None:
            self._judge_mixed(history, file, history.elsewhere)
        self.seen["histories"] += 1

    def _judge_mixed(self, history: RingHistory, file: Path, elsewhere: RunningBroker) -> None:
        """With an address of another broker of the cluster's name, which has the same vhost, a command does nothing, and says why."""
        number = self.seen["histories"]
        command, mix = _MIXED[number % len(_MIXED)], _MIXES[number % len(_MIXES)]
        words = [str(file) if word == "FILE" else word for word in command]
        if history.truth() is None:
            return
        with history.copied_to(elsewhere) as copy:
            before = [(each.definitions(), each.truth()) for each in (history, copy)]
            management = str(copy.inside.management_url) if "management" in mix else ""
            source = copy.site.source if "source" in mix else ()
            code, said, noted = history.command(
                *words, reads=bool(source), management=management, source=source
            )
            is_refused = code == ExitCode.WRONG_USAGE and (TWO_BROKERS in said or " mistake" in said)
            # An API without any connection cannot tell; then nothing is certain.
            is_open = code not in (ExitCode.DONE, ExitCode.DIFFERENCE) and "were not compared" in noted
            told = "refused: of two brokers" if is_refused else "not compared" if is_open else "WRONG"
            self.seen[told] += 1
            if told == "WRONG":
                self.wrong.append(
                    "\n".join([f"{words} with {mix} of another broker: {code} {said}", *history.trail])
                )
            assert [(each.definitions(), each.truth()) for each in (history, copy)] == before, command

    def _blame(self, history: RingHistory, what: str) -> None:
        """Take note of a wrong claim. One from a record is right where its condition holds; what the bindings show is no condition."""
        self.seen["wrong, as the condition did not hold" if history.is_hidden else "WRONG"] += 1
        if not history.is_hidden:
            self.wrong.append("\n".join([what, *history.trail]))


_KEYS = [f"key-{number}" for number in range(50)]
#: What is asked at the end of a history: the commands take turns, because each takes a tenth of a second.
_TURNS = (
    (("check", X), ("show", X), ("repair", X, "--dry-run")),
    (("check", X), ("plan", "FILE"), ("verify", X, "--keys", "key-{0..99}")),
    (("check", X), ("plan", "FILE"), ("route", X, *_KEYS)),
    (("check", X), ("export", X), ("compare", X)),
)
#: What is asked with addresses of two brokers, and which of them are of the other one.
_MIXED = (
    *(command for turn in _TURNS for command in turn[1:]),
    ("record", X, "--yes"),
    ("apply", "FILE", "--yes", "--allow", "moved=1", "--allow", "delete"),
    ("repair", X, "--yes", "--allow", "moved=1"),
)
_MIXES = (("management",), ("source",), ("management", "source"))
#: How a ring is known, and what follows from that.
_GROUNDS = {
    "provenance",
    "condition",
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
    words = ('"provenance": null', '"determined": false', '"order_not_checked": "')
    return (command == "show" or code == ExitCode.DIFFERENCE) and any(word in said for word in words)


def _runs(buckets: Any) -> str:
    return "-" if buckets is None else " ".join(map(str, buckets))


def run_histories(
    numbers: range,
    nodes: tuple[RunningBroker, ...],
    judge: Judge,
    folder: Path,
    *,
    other: RunningBroker | None = None,
    restarted: Callable[[], None] = lambda: None,
) -> None:
    """Let things happen in some vhosts, in turns, and restart a node in between.

    Args:
        numbers: those of the histories.
        nodes: the nodes of the broker.
        judge: compares.
        folder: a folder for files.
        other: another broker of the same cluster's name, where some of the vhosts are made again; it is restarted, too.
        restarted: is called after a restart.
    """
    version = nodes[0].version
    random = Random(f"{version} {numbers}")  # noqa: S311
    restarts = dict(zip(random.sample(range(2, _STEPS - 1), 3), random.sample(_WAYS, 3), strict=True))
    histories = [
        RingHistory(nodes, f"history-{n}", Random(f"{version} {n}"), folder, hides=n % 3 == 0)  # noqa: S311
        for n in numbers
    ]
    with few_seeds(), dying_applier(histories[0].site) as applier:
        for history in histories:
            history.applier, history.elsewhere = applier, other
            history.others = [other for other in histories if other is not history]
        for step in range(_STEPS):
            if way := restarts.get(step):
                number = random.randrange(len(nodes))
                _restart(histories, way, [nodes[number], *([] if other is None else [other])])
                restarted()
                for history in histories:
                    history.after_restart(f"{way.__name__} of node {number + 1}")
            if len(nodes) > 1 and step == _STEPS // 2:
                assert nodes[0].management_url is not None
                Management(nodes[0].management_url).put("cluster-name", body={"name": f"law-{numbers.start}"})
            for history in histories:
                is_own = step not in restarts and history.happen()
                if is_own or step in restarts or step == _STEPS - 1:
                    history.settle(is_known=bool(judge.judge_rings(history)))
        for history in histories:
            judge.judge_commands(history, folder / "topology.toml")
            history.remove()


def _restart(
    histories: list[RingHistory], way: Callable[[RunningBroker], None], brokers: list[RunningBroker]
) -> None:
    for history in histories:
        history.prepare_restart()
    for broker in brokers:
        way(broker)
