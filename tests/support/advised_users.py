"""Users with different rights, in vhosts whose ring is in one of several states: who runs a command, and what it advises."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import cast
from unittest.mock import patch

import pika
from advice import Advice, heard
from background import beside
from canary import CANARY
from declared import with_login
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from slotted import declare_slots

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost
from rabbit_chx.topology import plan
from rabbit_chx.topology.objects import MARK, TRACE

X = "o"
QUEUES = ("q1", "q2", "q3")
_EVERYTHING = dict.fromkeys(("configure", "write", "read"), ".*")
_NOTHING = dict.fromkeys(("configure", "write", "read"), "^$")
#: All names but those that match.
_ALL_BUT = "^(?!{}).*"
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
RIGHTS = {
    "all": _EVERYTHING,
    "read": {**_NOTHING, "read": ".*"},
    "nothing on the mark": dict.fromkeys(_EVERYTHING, _ALL_BUT.format(f"{MARK}$".replace(".", r"\."))),
    "no configure": {**_EVERYTHING, "configure": "^$"},
    "nothing of ours": dict.fromkeys(_EVERYTHING, _ALL_BUT.format(r"rabbit-chx\.")),
}
RING = """
owns = ["q*"]
[[exchanges]]
name = "o"
type = "x-consistent-hash"
ring = [{members}]
[[queues]]
name = "q{{1..{queues}}}"
"""
SLOTS = """
[[exchanges]]
name = "o"
type = "x-consistent-hash"
slots = 4
members = [{members}]
[[queues]]
name = "q{{1..3}}"
"""


def _file(template: str, *members: str) -> str:
    listed = ", ".join(f'{{ queue = "{member}" }}' for member in members)
    return template.format(members=listed, queues=len(members))


BEFORE = _file(RING, "q1", "q2", "q3")
#: Keys move, and a queue goes.
AFTER = _file(RING, "q2", "q1")
LONGER = _file(RING, "q1", "q2", "q3", "q4")
SLOTS_BEFORE, SLOTS_AFTER = _file(SLOTS, "q1", "q2"), _file(SLOTS, "q1", "q2", "q3")


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C in the midst of an apply."""


@dataclass
class Place:
    """A vhost, and what its user wants.

    Attributes:
        file: the text of the topology file.
    """

    broker: RunningBroker
    name: str
    api: Management
    channel: BlockingChannel
    file: str = AFTER

    def apply(self, text: str, *, records: bool = True, until: int | None = None) -> None:
        """Apply a file, up to a number of changes."""

        def progress(done: int, _: int) -> None:
            if done == until:
                raise _Interrupted

        wanted = Topology.from_toml(text)
        with (
            suppress(_Interrupted),
            Broker(self.broker.url, self.broker.management_url, quick_prefix(self.broker)) as broker,
        ):
            made = plan(wanted, broker.topology())
            broker.apply(made, allow_moved=1, allow_delete=True, records=records, progress=progress)

    def bind(self, *bindings: str) -> None:
        """Declare the exchange and queues, and bind as another program does."""
        self.channel.exchange_declare(X, CHX, durable=True)
        for queue in QUEUES:
            self.channel.queue_declare(queue, durable=True)
        for binding in bindings:
            queue, _, key = binding.partition("=")
            self.channel.queue_bind(queue, X, key or "1")

    def unbind(self, *queues: str) -> None:
        for queue in queues:
            self.channel.queue_unbind(queue, X, "1")

    def mark_policy(self) -> None:
        """Let a policy take the messages of the mark away."""
        body = {"pattern": "^rabbit-chx", "apply-to": "queues", "definition": {"message-ttl": 0}}
        self.api.put("policies", self.name, "short", body=body)


def _nothing(_: Place) -> None:
    """The vhost is empty."""


def _unknown(place: Place) -> None:
    place.bind(*QUEUES)


def _recorded(place: Place) -> None:
    place.apply(BEFORE)


def _longer(place: Place) -> None:
    place.apply(BEFORE)
    place.file = LONGER


def _done(place: Place) -> None:
    place.apply(BEFORE)
    place.file = BEFORE


def _unbound_by_others(place: Place) -> None:
    place.apply(BEFORE)
    place.unbind("q2")


def _bound_by_others(place: Place) -> None:
    place.apply(BEFORE)
    for queue in ("q8", "q9"):
        place.channel.queue_declare(queue, durable=True)
    place.bind("q8", "q9")


def _bound_again(place: Place) -> None:
    place.apply(BEFORE)
    place.unbind("q1")
    place.bind("q1")


def _bound_twice(place: Place) -> None:
    place.apply(BEFORE)
    place.bind("q1=2")


def _bound_twice_unknown(place: Place) -> None:
    place.bind(*QUEUES, "q1=2")


def _sole(place: Place) -> None:
    place.bind("q1", "q1=2")


def _void(place: Place) -> None:
    place.apply(BEFORE)
    place.channel.queue_purge(MARK)


def _no_mark(place: Place) -> None:
    place.apply(BEFORE)
    place.channel.queue_delete(MARK)


def _no_record(place: Place) -> None:
    place.apply(BEFORE, records=False)
    place.file = BEFORE


def _interrupted(place: Place) -> None:
    place.apply(BEFORE)
    place.apply(AFTER, until=2)


def _given_up(place: Place) -> None:
    place.apply(BEFORE)
    place.apply(AFTER, until=2)
    place.file = LONGER


def _policy_before(place: Place) -> None:
    place.mark_policy()
    place.bind(*QUEUES)


def _policy_after(place: Place) -> None:
    place.apply(BEFORE)
    place.mark_policy()


def _slots_unknown(place: Place) -> None:
    declare_slots(place.channel, X, 4, ("q1", "q2"))
    place.file = SLOTS_AFTER


def _slots_recorded(place: Place) -> None:
    place.apply(SLOTS_BEFORE)
    place.file = SLOTS_AFTER


def _traced(place: Place) -> None:
    """A process that was killed has left tracing on."""
    place.bind(*QUEUES)
    node = place.api.get("overview")["node"]
    sign = {"type": "fanout", "durable": True, "internal": True}
    place.api.put(
        "exchanges", place.name, TRACE, body={**sign, "arguments": {"switched-on-by": "me", "node": node}}
    )
    place.api.put("vhosts", place.name, body={"tracing": True})


STATES: dict[str, Callable[[Place], None]] = {
    name.removeprefix("_").replace("_", " "): state
    for name, state in (
        (state.__name__, state)
        for state in (
            _nothing,
            _unknown,
            _recorded,
            _longer,
            _done,
            _unbound_by_others,
            _bound_by_others,
            _bound_again,
            _bound_twice,
            _bound_twice_unknown,
            _sole,
            _void,
            _no_mark,
            _no_record,
            _interrupted,
            _given_up,
            _policy_before,
            _policy_after,
            _slots_unknown,
            _slots_recorded,
            _traced,
        )
    )
}
#: The commands that change a vhost.
_WRITERS = ("apply", "repair", "record")


#: How a refusal names what the user lacks.
_HOW_TO_GRANT = re.compile(
    r"set_permissions|set_user_tags|takes the tag administrator: let a user who has it"
)


@dataclass(frozen=True)
class Ran:
    """A command that has ended.

    Attributes:
        refusal: what it refuses, in words; empty if it refuses nothing.
    """

    words: tuple[str, ...]
    code: int
    said: str
    advice: list[Advice]
    refusal: str

    @property
    def is_refused(self) -> bool:
        return self.code not in (0, 1)

    def __str__(self) -> str:
        return f"{shlex.join(self.words)}\n    = {self.code}: {self.said[:1500]}"


@dataclass(frozen=True)
class User:
    """A user, and what they have.

    Attributes:
        tag: the tag of the management API; empty for none.
        rights: the name of the rights.
        runs_ctl: True if they can run ``rabbitmqctl``.
        has_management: True if they pass the URL of the management API.
    """

    tag: str
    rights: str
    runs_ctl: bool
    has_management: bool = True


class Advised:
    """Runs commands as a user in places of one state, and follows what they advise.

    Args:
        broker: the broker.
        user: the user, who is made.
        state: the name of the state.
        folder: a folder for files.
    """

    def __init__(self, broker: RunningBroker, user: User, state: str, folder: Path) -> None:
        assert broker.management_url is not None
        self._broker, self._user, self._state, self._folder = broker, user, state, folder
        self._api = Management(broker.management_url)
        self._name = f"advised-{os.getpid()}"
        self._made = 0
        self._api.put("users", self._name, body={"password": CANARY, "tags": user.tag})
        self._results: dict[tuple[tuple[str, ...], ...], Ran] = {}
        self._places, self._unchanged = ExitStack(), cast("Place | None", None)
        self.wrong: list[str] = []
        self.followed = 0

    def close(self) -> None:
        """Delete the user and the vhosts."""
        self._places.close()
        self._api.delete("users", self._name)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Make a vhost in the state for a block."""
        self._made += 1
        name = f"{self._name}-{self._made}"
        self._api.put("vhosts", name, body={})
        try:
            self._api.put("permissions", name, "guest", body=_EVERYTHING)
            self._api.put("permissions", name, self._name, body=RIGHTS[self._user.rights])
            inside = in_vhost(self._broker, name)
            with closing(pika.BlockingConnection(pika_parameters(f"{inside.url}?heartbeat=0"))) as connection:
                place = Place(inside, name, self._api, connection.channel())
                STATES[self._state](place)
            (self._folder / "topology.toml").write_text(place.file)
            yield place
        finally:
            self._api.delete("vhosts", name)

    # -- commands

    def run(self, place: Place, *words: str, output: str = "json") -> Ran:
        """Run a command in a place as the user."""
        typed = [self._filled(place, word) for word in words]
        if output != "table":
            typed += ["-o", output]
        url, management = (
            with_login(each, self._name, CANARY)
            for each in (place.broker.url, str(place.broker.management_url))
        )
        environment = {"AMQP_URL": url, "COLUMNS": "10000"}
        if self._user.has_management:
            environment["RABBIT_CHX_MANAGEMENT_URL"] = management
        if self._user.runs_ctl:
            environment["RABBIT_CHX_RING_VIA"] = shlex.join(quick_prefix(self._broker))
        stdout, stderr = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, environment):
            for name in ("RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_RING_VIA", "RABBIT_CHX_VHOST"):
                if name not in environment:
                    os.environ.pop(name, None)
            with (
                heard() as hearing,
                redirect_stdout(stdout),
                redirect_stderr(stderr),
                self._traffic(place, typed),
            ):
                code = main(typed)
        out, errors = stdout.getvalue(), stderr.getvalue()
        texts, refusal = [out], ""
        if output == "json" and out:
            document = json.loads(out)
            texts = [*_texts_in(document)]
            refusal = "\n".join(sorted(each["message"] for each in document.get("refusals") or ()))
        said = " ".join("\n".join([*texts, errors]).split())
        refusal = refusal or " ".join(errors.split())
        return Ran(
            tuple(words), code, said, hearing.advice_in(said, words[0]), refusal if code not in (0, 1) else ""
        )

    def _filled(self, place: Place, word: str) -> str:
        """Return a word of a command without placeholders."""
        given = {
            "FILE": str(self._folder / "topology.toml"),
            "EXCHANGE": X,
            "PREFIX": shlex.join(quick_prefix(self._broker)),
            "http://user:password@host:15672": str(place.broker.management_url),
            "PAIRS": str(self._folder / "pairs.csv"),
        }
        if word == "PAIRS":
            self._write_pairs(place)
        return given.get(word, word)

    def _write_pairs(self, place: Place) -> None:
        """Write keys and the queues that get their messages, as consumers would note them."""
        with Broker(place.broker.url, place.broker.management_url, quick_prefix(self._broker)) as broker:
            ring = broker.ring(X)
        now = datetime.now(UTC).isoformat()
        lines = [f"key-{n},{ring.destination_for(f'key-{n}')},{now}" for n in range(300)]
        (self._folder / "pairs.csv").write_text("\n".join(["key,queue,time", *lines]))

    @contextmanager
    def _traffic(self, place: Place, words: Sequence[str]) -> Iterator[None]:
        """Publish for a block if its command traces."""
        if "--trace" not in words:
            yield
            return

        def publish(stop: Event) -> None:
            with closing(pika.BlockingConnection(pika_parameters(place.broker.url))) as connection:
                channel, number = connection.channel(), 0
                while not stop.wait(0.002):
                    number += 1
                    with suppress(pika.exceptions.ChannelClosedByBroker):  # there may be no exchange
                        channel.basic_publish(X, f"key-{number}", b"")
                    if not channel.is_open:
                        return

        with beside(publish):
            yield

    # -- what they advise

    def follow(self, *words: str, output: str = "json") -> None:
        """Run a command, and what it advises, in the same state; note what is not advice for this user."""
        base = self._run_in([], words, output=output)
        if output != "json" and base.is_refused and any(each.is_option for each in base.advice):
            base = replace(base, refusal=self._run_in([], words).refusal)
        before = [words] if _changes(base) else []
        for advice in dict.fromkeys(base.advice):
            if command := _to_run(base.words, advice):
                self._judge(base, advice, command, before)

    def _run_in(
        self, before: Sequence[tuple[str, ...]], command: tuple[str, ...], output: str = "json"
    ) -> Ran:
        """Run a command in a place of the state after some commands; a place that is as before is used again."""
        place = self._places.enter_context(self.place()) if self._unchanged is None else self._unchanged
        self._unchanged = None
        for each in before:
            self.run(place, *each)
        ran = self.run(place, *command, output=output)
        if before or _changes(ran):
            self._places.close()
        else:
            self._unchanged = place
        return ran

    def _judge(
        self,
        base: Ran,
        advice: Advice,
        command: tuple[str, ...],
        before: Sequence[tuple[str, ...]],
    ) -> None:
        if "--ring-via" in advice.words and self._user.runs_ctl:
            self._blame(base, advice, "names a way that it was given")
            return
        found = self._results.get((command, *before))
        if found is None:
            found = self._results[command, *before] = self._run_in(before, command)
            self.followed += 1
        # Before the management API is asked, nothing shows what the user would be refused next.
        is_first = "--management-url" not in advice.words
        if _HOW_TO_GRANT.search(found.said):
            return
        if found.code == 77:
            self._blame(base, advice, f"lacks a right, and is not told which: {found}")
        elif found.code == 2 and is_first:
            self._blame(base, advice, f"cannot be run: {found}")
        elif base.is_refused and found.is_refused and found.refusal == base.refusal:
            self._blame(base, advice, f"is refused again: {found}")

    def _blame(self, base: Ran, advice: Advice, why: str) -> None:
        self.wrong.append(f"{self._user} {self._state}: {shlex.join(advice.words)} {why}\n  said by {base}")


def _changes(ran: Ran) -> bool:
    """Return True if a command may have changed the broker."""
    return (ran.words[0] in _WRITERS or "--yes" in ran.words) and ran.code in (0, 1, 3)


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)
    elif isinstance(value, str):
        yield value


def _to_run(base: tuple[str, ...], advice: Advice) -> tuple[str, ...] | None:
    """Return the command that follows advice, without questions; None if nothing is to be run."""
    words = (*_without(base, advice.words[0]), *advice.words) if advice.is_option else advice.words
    if words[0] == "ui" or advice.words[0] in ("--output", "--all", "--drain"):
        return None
    given = {"--observed": "PAIRS", "--trace": "1"}
    words = tuple(given.get(before, word) for before, word in zip(("", *words), words, strict=False))
    asks = words[0] == "record" or "--trace" in words or (words[0] in _WRITERS and "--dry-run" not in words)
    return (*words, "--yes") if asks and "--yes" not in words else words


def _without(words: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Return the words of a command without an option that is given again; permissions are repeated."""
    if option not in words or option == "--allow":
        return words
    at = words.index(option)
    return (*words[:at], *words[at + 2 :])
