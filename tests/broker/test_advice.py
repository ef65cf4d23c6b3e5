"""No message advises a command that this user cannot run, or that has just been refused.

Each case is a user, by tag, permissions and `rabbitmqctl`, and the state of a vhost. All commands are run in it, and each command and option
that they name is run, too, as the same user in the same state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from random import Random

import pytest
from advised_users import RIGHTS, STATES, TAGS, Advised, User
from few_seeds import few_seeds

from rabbit_chx.testing import RunningBroker

#: `make long WHAT=advice` has a thousand on three releases.
_CASES = int(os.environ.get("ADVICE_CASES", "5"))
#: Of so many cases each runs some of the commands, of more all.
_FEW = 20
COMMANDS = [
    ("route", "o", "k"),
    ("show",),
    ("show", "o"),
    ("show", "o", "--consumers"),
    ("check",),
    ("check", "o"),
    ("check", "FILE"),
    ("verify", "o", "--trace", "1", "--yes"),
    ("compare", "o"),
    ("export",),
    ("plan", "FILE"),
    ("plan", "FILE", "--allow", "moved=1", "--allow", "delete"),
    ("arrange", "FILE"),
    ("verify", "o", "--keys", "key-{0..9}"),
    ("apply", "FILE", "--yes"),
    ("apply", "FILE", "--yes", "--no-record"),
    ("apply", "FILE", "--yes", "--allow", "moved=1", "--allow", "delete"),
    ("record", "o"),
    ("record", "--all"),
    ("record", "o", "--trace", "1", "--yes"),
    ("repair", "o", "--dry-run"),
    ("repair", "o", "--yes"),
]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180 + 60 * _CASES)]


def users() -> Iterator[User]:
    for tag, rights, runs_ctl in product(TAGS, RIGHTS, (True, False)):
        yield User(tag, rights, runs_ctl)
        if runs_ctl and not tag:
            yield User(tag, rights, runs_ctl, has_management=False)


def cases() -> list[tuple[User, str]]:
    """Return the cases of this run: of each tag, right and state as many."""
    random = Random(20)  # noqa: S311
    everyone = list(product(users(), STATES))
    random.shuffle(everyone)
    if everyone[_CASES:]:
        seen: dict[object, int] = {}

        def common(case: tuple[User, str]) -> int:
            user, state = case
            return sum(seen.get(each, 0) for each in (user.tag, user.rights, state))

        chosen = []
        for _ in range(_CASES):
            best = min(everyone, key=common)
            everyone.remove(best)
            chosen.append(best)
            for each in (best[0].tag, best[0].rights, best[1]):
                seen[each] = seen.get(each, 0) + 1
        return chosen
    return everyone


def test_what_is_advised_can_be_run_and_is_not_refused_again(broker: RunningBroker, tmp_path: Path) -> None:
    random = Random(7)  # noqa: S311
    wrong: list[str] = []
    followed = 0
    for number, (user, state) in enumerate(cases()):
        commands = COMMANDS if _CASES > _FEW else random.sample(COMMANDS, 8)
        with few_seeds(), closing(Advised(broker, user, state, tmp_path)) as advised:
            for each, command in enumerate(commands):
                advised.follow(*command, output=("json", "table")[(number + each) % 2])
        wrong += advised.wrong
        followed += advised.followed
    assert wrong == [], "\n\n".join(wrong)
    assert followed > _CASES
