"""``rabbit-chx record``: store the order of rings on the broker."""

from __future__ import annotations

import csv
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

import click

from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.broker.recording import why_unrecordable
from rabbit_chx.checking.check import certain_ring
from rabbit_chx.cli.app import go_on_without_reader
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import (
    EXCHANGE,
    OWN,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    has_terminal,
    names_file,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import file_name, hashed_value, read_ring_record
from rabbit_chx.errors import AccessRefusedError, InputError, NotDeterminedError, PlanRefusedError
from rabbit_chx.options import number
from rabbit_chx.records.live_rings import (
    WaysToLearn,
    evidence_of,
    find_live_ring,
    live_hash_exchange,
    none_lasts,
)
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.rendering.document import Document, Table
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination
from rabbit_chx.routing.observations import Observation
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import EXCHANGE_PREFIX, command_text, exchange_argument, plural
from rabbit_chx.topology.objects import HASH_EXCHANGE

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.broker.firehose import TracedMessage
    from rabbit_chx.topology import LiveTopology, RingMember

# -- Evidence of the order of a ring: ``--trace`` asks the broker, ``--observed`` reads a log of keys and their queues. One reader for both

#: The contents of the columns, and their names if no others are given.
_COLUMNS = ("key", "queue", "time", "exchange", "count")
_NEEDED = ("key", "queue")
_MOST_NAMED = 5
#: A larger number is a time in milliseconds: as seconds it would be after the year 5000.
_LEAST_MILLISECONDS = 1e11
_MOST_WAITED_S = 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """The options of evidence, and the answer to the question of tracing."""

    section: ClassVar = OWN
    trace: float | None = option(
        type=number(3600),
        metavar="SECONDS",
        help="Copy each message of the vhost for this long, and read to which queues those go that are published to EXCHANGE. "
        "It switches on tracing, and takes the tag administrator.",
    )
    yes: bool = option(
        help="Do not ask before switching tracing on, or off if an interrupted command left it on.",
    )
    observed: str | None = option(
        metavar="FILE",
        help="Keys and the queues that received them, as .csv or .parquet, such as consumers write. A key is the hashed value. "
        "Only messages that were published to the exchange after the last change of its ring may be in the file. Its columns are key, queue, "
        "time, exchange and count (of messages); FILE#key=NAME,queue=NAME names others.",
    )
    waited: float | None = option(
        is_rare=True,
        type=number(_MOST_WAITED_S),
        metavar="SECONDS",
        help="With --observed on Mnesia, whose restart changes the order: how long a message waited in its queue before its `time`, at most; "
        "0 if that is when it was published.  [default: 0 if the queues are empty]",
    )

    def __post_init__(self) -> None:
        if self.trace == 0:
            raise InputError("--trace 0 sees no message: pass seconds in which some are published")
        self._names()

    @property
    def is_given(self) -> bool:
        """True if there is evidence to read."""
        return self.trace is not None or self.observed is not None

    @property
    def source(self) -> str:
        """What shows the queues of keys, in words."""
        if self.trace is not None:
            return f"what the broker did with them in {self.trace:g} s of live traffic"
        return f"the queues that received them, by {file_name(self.path)}"

    def pairs(self, opened: Broker, live: LiveTopology, name: str, *, is_compared: bool) -> list[Observation]:
        """Return keys and their queues.

        Args:
            opened: the broker.
            live: its topology.
            name: the exchange.
            is_compared: of traced messages, True: the keys are in queues, for a comparison with its map; False: in the destinations of its ring.

        Raises:
            PlanRefusedError: the user does not agree to tracing.
            NotDeterminedError: no message is left, or it is not known what they show.
        """
        pairs = [] if self.observed is None else _observed_pairs(self, live, name)
        if self.trace is not None:
            pairs += _traced_pairs(opened, live, name, self, is_compared=is_compared)
        return pairs

    def to_continue(
        self, error: NotDeterminedError, name: str, pairs: Sequence[Observation]
    ) -> NotDeterminedError:
        """Return the error of too few keys; of a trace with the time that the others take at its rate, and the file that keeps those seen."""
        seen = len({each.key for each in pairs if each.is_traced})
        if self.trace is None or not (error.keys_needed and seen):
            return error
        seconds = float(math.ceil(error.keys_needed * self.trace / seen))
        kept = _keep(name, pairs)
        options = ["--trace", f"{seconds:g}"]
        if kept is not None:
            # A traced message has not waited.
            options += ["--observed", kept, "--waited", f"{self.waited or 0:g}"]
        ways = "what was seen is kept, go on with" if kept else "trace longer, with"
        command = command_text("record", exchange_argument(name), *options)
        return NotDeterminedError(
            f"{error.fact}: at this rate the {error.keys_needed:,} that it takes come in about {seconds:g} s; {ways} {command}",
            exchange=name,
        )

    @property
    def path(self) -> str:
        """The file, without the names of its columns."""
        return (self.observed or "").partition("#")[0]

    def _names(self) -> dict[str, str]:
        """Return the names that are given, by what the column contains."""
        names: dict[str, str] = {}
        path, _, columns = (self.observed or "").partition("#")
        for given in filter(None, columns.split(",")):
            what, equals, name = given.partition("=")
            if not equals or what not in _COLUMNS or (not name and what in _NEEDED):
                raise InputError(
                    f"{given!r:.60} names no column: write {path}#key=NAME,queue=NAME; time=NAME and exchange=NAME are optional"
                )
            names[what] = name
        return names

    def read_file(
        self, exchange: str, hashing: Hashing, why_left_out: Callable[[str | None], str] = lambda _time: ""
    ) -> list[Observation]:
        """Read the file: each distinct pair of a key and its queue, with the first time, and the number of messages.

        Messages of other exchanges are left out, if the file has a column with the exchange.

        Args:
            exchange: the exchange.
            hashing: what it hashes.
            why_left_out: returns why a pair of a time is left out; empty if it is not.
        """
        from rabbit_chx.cli.samples import check_columns, table_rows

        path = self.path
        file = file_name(path)

        def choose(names: Sequence[str]) -> dict[str, str]:
            chosen = self._chosen(names)
            try:
                check_columns(file, chosen.values(), names)
            except InputError as error:
                raise InputError(f"{error}; write {path}#key=NAME,queue=NAME") from None
            return chosen

        found: dict[tuple[str, str], Observation] = {}
        counts: Counter[tuple[str, str]] = Counter()
        others: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        for rows in table_rows(path, "observed keys", choose):
            columns = (rows.values.get(content) or repeat(None) for content in _COLUMNS)
            for row, (key, queue, time, of, count) in enumerate(zip(*columns, strict=False), rows.first):
                if not queue:
                    raise InputError(f"row {row} of {file} has no queue: leave out keys that reached none")
                if of not in (None, exchange):
                    others[of] += 1
                elif why := why_left_out(time):
                    left_out[why] += 1
                else:
                    counts[key, queue] += 1 if count is None else count
                    if (key, queue) not in found:
                        found[key, queue] = Observation(hashed_value(hashing, key), queue, time)
        _say_left_out(file, exchange, others, left_out)
        _check_left(file, exchange, len(found), left_out)
        return [pair._replace(messages=counts[at]) for at, pair in found.items()]

    def _chosen(self, names: Sequence[str]) -> dict[str, str]:
        """Return the column of each content, of all columns of the file."""
        given = self._names()
        optional = [what for what in _COLUMNS if what not in _NEEDED and what in names]
        wanted = {what: given.get(what, what) for what in dict.fromkeys((*_NEEDED, *optional, *given))}
        chosen = {what: name for what, name in wanted.items() if name}
        for name, count in Counter(chosen.values()).items():
            if count > 1:
                whats = " and ".join(what for what in chosen if chosen[what] == name)
                raise InputError(f"the column {name!r:.60} belongs to {whats}: name another for one of them")
        return chosen


def _why_left_out(since: float | None, time: str | None) -> str:
    """Return why a pair says nothing about a ring on Mnesia; empty if its time shows that it does: ISO 8601, or s or ms since 1970."""
    try:
        seconds = float(time or "")
    except ValueError:
        try:
            moment = datetime.fromisoformat(time or "")
        except ValueError:
            return "without a time"
        if moment.tzinfo is None:
            return "of a time without an offset"
        seconds = moment.timestamp()
    if seconds > _LEAST_MILLISECONDS:
        seconds /= 1000
    return "from before the last start of the broker" if seconds < (since or 0) else ""


def _say_left_out(file: str, exchange: str, others: Counter[str], left_out: Counter[str]) -> None:
    if others:
        names = ", ".join(repr(name) for name, _ in others.most_common(_MOST_NAMED))
        say(
            f"{file}: {plural(others.total(), 'message')} of other exchanges left out ({names}); if {exchange!r} gets messages from them, "
            f"pass {file}#exchange="
        )
    for why, count in left_out.items():
        say(f"{file}: {plural(count, 'message')} {why} left out: a restart on Mnesia changes the order")


def _check_left(file: str, exchange: str, found: int, left_out: Counter[str]) -> None:
    """Raise an error if no pair of the exchange is left."""
    if not found and left_out:
        raise NotDeterminedError(
            f"all {plural(left_out.total(), 'message')} of {exchange!r} in {file} are {' or '.join(left_out)}, and a restart on Mnesia "
            "changes the order of the ring: pass later ones, each with its time, such as 2026-11-26T03:02:00Z"
        )
    if not found:
        raise InputError(f"{file} has no key of the exchange {exchange!r}: pass at least one")


def read_trace(opened: Broker, vhost: str, exchange: str, given: EvidenceOptions) -> list[TracedMessage]:
    """Return what the broker does with the messages of an exchange, if the user agrees to tracing.

    Raises:
        PlanRefusedError: the user does not agree.
        NotDeterminedError: no message was published.
    """
    seconds = given.trace or 0
    if not opened.is_traced() and not given.yes:
        about = f"tracing costs each message of vhost {vhost!r} a copy for {seconds:g} s"
        if not has_terminal():
            raise PlanRefusedError(f"{about}, and nothing was switched on: agree with --yes")
        if not click.confirm(f"{about}. Switch it on?", err=True):
            raise PlanRefusedError("nothing was switched on")
    with sign_of_life(f"tracing {exchange}"):
        found = opened.trace(exchange, seconds)
        node = opened.traced_node()
    if node is not None:
        say(f"only messages that were published over node {node} were traced, not those over others")
    if not found:
        raise NotDeterminedError(
            f"no message was published to exchange {exchange!r} of vhost {vhost!r} in {seconds:g} s, over the node of the management URL: trace "
            "while messages are published, to this exchange itself",
            exchange=exchange,
        )
    return found


def _keep(exchange: str, pairs: Sequence[Observation]) -> str | None:
    """Write pairs to a file that only the user may read, as `--observed` reads it, and return its path; None for what a file cannot have."""
    texts = [_text_of(each.key) for each in pairs]
    if None in texts or not all(isinstance(each.queue, str) for each in pairs):
        return None
    now = datetime.now(UTC).isoformat()
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile(
            "w", prefix="rabbit-chx-", suffix=".csv", delete=False, newline="", encoding="utf-8"
        ) as file,
    ):
        rows = csv.writer(file)
        rows.writerow(_COLUMNS)
        rows.writerows(
            (key, each.queue, each.time or now, exchange, each.messages)
            for each, key in zip(pairs, texts, strict=True)
        )
        return file.name
    return None


def _text_of(key: object) -> str | None:
    """Return a key as text; None if a text in a file is another key."""
    value = key.value if isinstance(key, AmqpField) and key.type == "longstr" else key
    try:
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None
    except UnicodeDecodeError:
        return None


def _traced_pairs(
    opened: Broker, live: LiveTopology, name: str, given: EvidenceOptions, *, is_compared: bool
) -> list[Observation]:
    from rabbit_chx.broker.scratch import as_observations
    from rabbit_chx.topology.reach import Reach, destinations_of_queues

    exchange = live.exchange(name)
    assert exchange is not None  # the callers have found it
    places: Mapping[str, Destination]
    if is_compared:
        places = {place: place for place in live.key_map(name).destinations if isinstance(place, str)}
    else:
        members = dict.fromkeys(member.destination for member in exchange.ring or ())
        places = destinations_of_queues(live, name, members)
    try:
        traced = read_trace(opened, live.vhost or "/", name, given)
    except AccessRefusedError as error:
        if "administrator" not in str(error):
            raise
        verb = "verify" if is_compared else "record"
        observed = command_text(verb, exchange_argument(name), "--observed", "FILE")
        raise AccessRefusedError(
            "tracing takes the tag administrator: let a user who has it run this command, or pass keys and the queues that received them: "
            f"{observed}",
            exchange=name,
            reply_code=error.reply_code,
        ) from None
    has_alternate = Reach(live).alternate_of(exchange) is not None
    return as_observations(traced, places, has_alternate=has_alternate)


def _observed_pairs(options: EvidenceOptions, live: LiveTopology, name: str) -> list[Observation]:
    """Read the pairs of a live exchange. On Mnesia each needs a time after the last start of the broker, or if the messages waited in their
    queues, so much later.

    Raises:
        NotDeterminedError: no pair is left, or it is not known how long the messages waited.
    """
    exchange = live.exchange(name)
    hashing = hashing_of(live, name)
    if exchange is None or (live.release or NEWEST_COMPARED).follows(RESTART_KEEPS):
        return options.read_file(name, hashing)
    start = live.facts.last_start
    if start is not None and options.waited is None:
        queues = [member.destination for member in exchange.ring or ()]
        waiting = {
            queue: count for queue, count in live.facts.queues.messages.items() if queue in queues and count
        }
        if waiting:
            queue, count = next(iter(waiting.items()))
            raise NotDeterminedError(
                f"{plural(count, 'message')} {'waits' if count == 1 else 'wait'} in {queue}, so the observed ones may have waited since before the "
                "last start of the broker, which changed the order: pass --waited SECONDS, their longest wait"
            )
    since = None if start is None else start + (options.waited or 0)
    return options.read_file(name, hashing, partial(_why_left_out, since))


def with_observed_ring(live: LiveTopology, name: str, pairs: Sequence[Observation]) -> LiveTopology:
    """Return a live topology with the ring of an exchange that observations determine."""
    from rabbit_chx.broker.scratch import observed_ring

    exchange = live.exchange(name)
    bindings = [(member.destination, member.key) for member in (exchange.ring if exchange else None) or ()]
    ring = observed_ring(bindings, pairs, live.release or NEWEST_COMPARED, hashing_of(live, name))
    return live.with_rings({name: ring})


def hashing_of(live: LiveTopology, name: str) -> Hashing:
    """Return what a live exchange hashes."""
    exchange = live.exchange(name)
    arguments = {} if exchange is None else exchange.arguments
    return Hashing(arguments.get("hash-header"), arguments.get("hash-property"))


def _new_text(is_new: bool) -> str:  # noqa: FBT001  # of a cell
    return "new" if is_new else ""


@dataclass(frozen=True, slots=True)
class RecordedRing:
    """A record of a ring on the broker: its number of bindings, when and by whom it was written."""

    exchange: str = field(metadata=shown("exchange"))
    origin: str = field(metadata=shown("order"))
    members: int = field(metadata=shown("bindings", number=True))
    written: str = field(metadata=shown("written"))
    writer: str = field(metadata=shown("writer"))
    is_new: bool = field(metadata=shown("new", _new_text))


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The records of rings."""

    vhost: str
    recorded: Sequence[RecordedRing]


@command(
    example="rabbit-chx record --all --ring-via 'docker exec rabbitmq'",
    rules=Rules(
        needs={"--waited": "--observed"},
        excludes=[
            ("--all", "EXCHANGE"),
            ("--from", "--observed"),
            *(("--trace", name) for name in ("--all", "--from")),
            ("--all", "--from"),
        ],
        of_one=("--from", "--observed", "--trace"),
    ),
)
def record(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=EXCHANGE, metavar="[EXCHANGE]..."),
    every: bool = option("--all", help="Record every x-consistent-hash exchange of the vhost."),
    source: str | None = option(
        "--from",
        metavar="FILE",
        help="The output of `show -o json` for EXCHANGE, instead of --ring-via.",
    ),
    evidence: EvidenceOptions = options(
        EvidenceOptions, yes="Replace records that differ, and switch tracing on, without asking."
    ),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
) -> CommandResult:
    """Read the ring of each EXCHANGE, and store its order on the broker, in an exchange rabbit-chx.ring.NAME.

    The ring is read by --ring-via, comes from --from, or follows from --observed: N buckets
    need about N ln N different keys with their queues; at least 20 more, or N if that is more, must confirm the result. --trace
    sees such keys in live traffic, and keeps them for a further run with both if they are not enough. Afterwards every command knows the ring over the management
    API. A record is exact as long as this program binds and unbinds; others may unbind members, or bind one more.

    A record that differs from the ring is named before it is replaced. The command asks on a terminal: the exit code
    is 4 if the answer is no. Without a terminal it needs --yes: the exit code is 1 without it.
    """
    go_on_without_reader()
    if not exchanges and not every:
        raise InputError("pass an EXCHANGE, or --all for every x-consistent-hash exchange")
    at = broker.live()
    if source is not None:
        at = replace(at, ring_source=read_ring_record(source))
    with at.open(yes=evidence.yes) as opened, sign_of_life("reading the broker"):
        live = opened.topology()
        names = exchanges or tuple(name.name for name in live.exchanges if name.type == HASH_EXCHANGE)
        if not names:
            raise InputError(f"vhost {at.settings.vhost} has no x-consistent-hash exchange: check the vhost")
        hashing = [live_hash_exchange(live, name).name for name in names]
        if evidence.is_given:
            name = hashing[0]
            pairs = evidence.pairs(opened, live, name, is_compared=False)
            try:
                live = with_observed_ring(live, name, pairs)
            except NotDeterminedError as error:
                raise evidence.to_continue(error, name, pairs) from None
        bound = {name: find_live_ring(live, live.exchange(name), name).bound for name in hashing}
        _refuse_passing(opened, live, bound)
        ways_to_learn = evidence_of(live).ways_to_learn
        remedy = f"{none_lasts(ways_to_learn)}: change that first" if ways_to_learn.voids else None
        rings = {name: certain_ring(live, name, remedy) for name in names}
        known = evidence_of(live)
        stored = known.records
        new = {name: ring for name, ring in rings.items() if not known.proves(name, ring, bound[name])}
        for name in new.keys() & stored.keys():
            if stored[name].ring.buckets != rings[name].buckets:
                refused = _refuse(name, stored[name], yes=evidence.yes)
                if refused is not None:
                    return CommandResult(None, code=refused)
        written = opened.record(new)
    if policies := known.mark.policies:
        say(none_lasts(WaysToLearn(voids=policies)))
    records = {**{name: stored[name] for name in rings if name not in new}, **written}
    rows = [
        RecordedRing(name, kept.origin, len(kept.members), kept.written, kept.writer, name in new)
        for name, kept in sorted(records.items())
    ]
    result = RecordResult(at.settings.vhost, rows)
    return CommandResult(Document("records", [Table.of(RecordedRing, rows)], result))


def _refuse_passing(opened: Broker, live: LiveTopology, bound: Mapping[str, tuple[RingMember, ...]]) -> None:
    """Refuse rings of which no record lasts, after what is stored of them is deleted."""
    if names := [name for name, members in bound.items() if why_unrecordable(name, members, live)]:
        opened.record({name: live.rings[name] for name in names})


def _refuse(name: str, stored: RingRecord, *, yes: bool) -> ExitCode | None:
    """Say that a record differs, and ask whether to replace it; return the exit code if it stays."""
    about = f"the record of {name}, of {stored.about}, has another order than the ring"
    if yes:
        say(f"{about}: it is replaced")
        return None
    if not has_terminal():
        as_exchange = f"{EXCHANGE_PREFIX}{name}" if names_file(name) else exchange_argument(name)
        check = command_text("check", as_exchange)
        say(f"{about}, and nothing was changed: {check} compares them; replace it with --yes")
        return ExitCode.DIFFERENCE
    return None if click.confirm(f"{about}. Replace it?", err=True) else ExitCode.REFUSED
