"""Random histories of a ring in a vhost of a real broker: own changes, those of other programs, copies, losses and restarts.

A record has a condition, as docs/operate/managed-brokers.md says. A history knows whether it holds, or the bindings show that it does not.
"""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import pika
import pika.exceptions
from bounded import until
from changed_site import ChangedSite
from dying_applier import DyingApplier
from exchange_types import CHX, FANOUT

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.ring_source import DiagnosticsRing
from rabbit_chx.cli import main
from rabbit_chx.errors import BrokerRefusedError, NotFoundError, RabbitChxError
from rabbit_chx.records.ring_records import record_name
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import Destination, ExchangeRef, Place
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost
from rabbit_chx.topology import healed, plan
from rabbit_chx.topology.objects import MARK, PENDING_APPLY

X = "x"
_QUEUES = [f"q{number}" for number in range(5)]
_FAN = "fan"
_TEMPORARY = ["t0", "t1"]
_WEIGHTS = ["1", "2", "3", "7"]
_EVERYTHING = dict.fromkeys(("configure", "write", "read"), ".*")
_FIELDS = ("type", "durable", "auto_delete", "internal", "arguments")
_AMQP_ERRORS = (pika.exceptions.AMQPError, pika.exceptions.StreamLostError)
_MOST_OPERATIONS = 25
#: What a user is told whose addresses are those of two brokers.
TWO_BROKERS = "pass the addresses of one broker"

Listed: TypeAlias = tuple[Destination, str, str]


@dataclass
class _Others:
    """What other programs did since the record was written.

    Attributes:
        recorded: the bindings when it was written.
        bound, unbound: the destinations that they bound, and those of which they removed a binding.
    """

    recorded: Counter[Listed] = field(default_factory=Counter)
    bound: set[Destination] = field(default_factory=set)
    unbound: set[Destination] = field(default_factory=set)


class RingHistory:
    """A vhost with a ring, and what happens to it.

    Args:
        nodes: the nodes of the broker.
        name: the name of the vhost, which is made.
        random: what happens.
        folder: a folder for files.
        hides: False: other programs do nothing that bindings do not show.

    Attributes:
        applier: applies plans in a process that dies.
        trail: what happened, in words.
        others: the histories beside it, whose definitions it may get.
        elsewhere: another broker of the same cluster's name; None: there is none.
    """

    def __init__(
        self,
        nodes: Sequence[RunningBroker],
        name: str,
        random: Random,
        folder: Path,
        *,
        hides: bool,
    ) -> None:
        self.applier: DyingApplier
        self.name, self.random, self.hides = name, random, hides
        self.trail: list[str] = []
        self.others: list[RingHistory] = []
        self.elsewhere: RunningBroker | None = None
        self._file = folder / f"{name}.json"
        self._holders: dict[str, pika.BlockingConnection] = {}
        self._backup: Any = None
        self._others, self._others_by_file = _Others(), _Others()
        self._has_new_record = False
        self._bound_by_services: list[Listed] = []
        self._nodes = nodes
        self._move_to(nodes[0])
        self._make_vhost()
        self.site.channel.exchange_declare(_FAN, FANOUT, durable=True)
        for queue in _QUEUES:
            self.ask_anywhere()
            self.site.channel.queue_declare(queue, durable=True)
        self._declare()
        if random.random() < 0.2:
            self._hold()
        for _ in range(2):
            self._bind_one()
        self.trail.append(f"bound {self._bindings()}")

    def _move_to(self, broker: RunningBroker) -> None:
        assert broker.management_url is not None
        self.inside, self.api = in_vhost(broker, self.name), Management(broker.management_url)

    def ask_anywhere(self) -> None:
        """Take the addresses of any nodes of a cluster."""
        if len(self._nodes) > 1:
            numbers = self.random.choices(range(len(self._nodes)), k=3)
            amqp, api, source = (self._nodes[number] for number in numbers)
            self.site.channel.connection.close()
            self._move_to(replace(amqp, management_url=api.management_url, ring_via=source.ring_via))
            self.connect()
            self.trail.append(f"  asked are nodes {[number + 1 for number in numbers]}")

    def _make_vhost(self) -> None:
        self.api.put("vhosts", self.name, body={})
        self.api.put("permissions", self.name, "guest", body=_EVERYTHING)
        self.connect()

    def _connection(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika_parameters(f"{self.inside.url}?heartbeat=0"))

    def connect(self) -> None:
        """Connect as another program."""
        self.site = ChangedSite(self.inside, self._connection().channel())

    def disconnect(self) -> None:
        """Close all connections, also those that the broker has broken."""
        for connection in (self.site.channel.connection, *self._holders.values()):
            with suppress(*_AMQP_ERRORS):
                connection.close()
        self._holders.clear()

    def remove(self) -> None:
        """Delete the vhost."""
        self.disconnect()
        self.api.delete("vhosts", self.name)

    # -- what is true

    def truth(self) -> tuple[Place, ...] | None:
        """Return the ring by ``rabbitmqctl eval``; None if the exchange does not exist."""
        with suppress(NotFoundError):
            return tuple(DiagnosticsRing(self.site.source).read(self.name, X))
        return None

    @property
    def is_hidden(self) -> bool:
        """True if the condition of the record does not hold, and the list of bindings does not show it: what was bound is not there."""
        return bool(self._others.bound) and Counter(self._listed()) <= self._others.recorded

    def settle(self, *, is_known: bool) -> None:
        """Take note of what was compared after something happened: a record that is right and new begins anew."""
        if self._has_new_record and is_known:
            self._begin_anew()
        elif self._has_new_record:
            self._others.recorded = Counter(self._listed())
        self._has_new_record = False

    def _begin_anew(self) -> None:
        self._bound_by_services = self._listed()
        self._others = _Others(Counter(self._listed()))

    def _queues(self) -> set[str]:
        return {entry["name"] for entry in self.api.get_list("queues", self.name, fields={"name": str})}

    def _has_record(self) -> bool:
        entries = self.api.get_list("exchanges", self.name, fields={"name": str})
        return any(entry["name"] == record_name(X) for entry in entries)

    def _listed(self) -> list[Listed]:
        with suppress(NotFoundError):
            return [
                (
                    entry["destination"]
                    if entry["destination_type"] == "queue"
                    else ExchangeRef(entry["destination"]),
                    entry["routing_key"],
                    entry["properties_key"],
                )
                for entry in self.api.get_list("exchanges", self.name, X, "bindings", "source", fields={})
            ]
        return []

    def _bindings(self) -> str:
        return " ".join(f"{place!s}={key}" for place, key, _ in sorted(self._listed(), key=str))

    # -- what happens

    def happen(self) -> bool:
        """Let one thing happen; return True if it was an own one."""
        self.ask_anywhere()
        of_others = _OF_OTHERS | (_OF_CLUSTERS if len(self._nodes) > 1 else {})
        doings = _OWN if self.random.random() < 0.4 else of_others
        (name,) = self.random.choices([*doings], [*doings.values()])
        if name in _OWN:
            self.trail.append(f"own {name}")
            try:
                getattr(self, f"_{name}")()
            except RabbitChxError as error:
                if TWO_BROKERS in str(error):
                    raise
                self.trail.append(f"  refused: {str(error)[:300]}")
        else:
            self._note_others(lambda: self._try(name))
        self.trail.append(f"  now {self._bindings()}{', hidden' if self.is_hidden else ''}")
        return name in _OWN

    def _try(self, name: str) -> None:
        self.trail.append(f"others {name}")
        try:
            getattr(self, f"_{name}")()
        except (*_AMQP_ERRORS, BrokerRefusedError) as error:
            self.trail.append(f"  refused: {error!r:.200}")
        if not self.site.channel.is_open:
            self.site.channel.connection.close()
            self.connect()

    def _note_others(self, do: Any) -> None:
        before = Counter(self._listed())
        do()
        after = Counter(self._listed())
        for others in (self._others, self._others_by_file):
            others.bound |= {place for place, *_ in after - before}
            others.unbound |= {place for place, *_ in before - after}

    def _may(self, place: Destination, kind: Literal["bound", "unbound"]) -> bool:
        """Return whether others may bind or unbind a destination."""
        did = self._others.unbound if kind == "bound" else self._others.bound
        return self.hides or place not in did

    # -- own changes

    def _drawn(self) -> Topology:
        """Return a file: with a ring, some of whose bindings have an argument or queues that the broker deletes, or with slots."""
        passing = "nd" if self.random.random() < 0.1 else "q4"
        members = [f"{{ queue = {queue!r} }}" for queue in (*_QUEUES[:4], passing)]
        if self.random.random() < 0.2:
            shared = ", ".join(self.random.sample(members[:4], 2))
            ring = f"slots = {self.random.choice([4, 6])}\nmembers = [{shared}]"
        else:
            members.append(f"{{ exchange = {_FAN!r} }}")
            weighted = [
                member.replace(
                    " }", f", weight = {self.random.choice(_WEIGHTS[:3])}{self._drawn_argument()} }}"
                )
                for member in self.random.sample(members, self.random.randint(1, 4))
            ]
            ring = f"ring = [{', '.join(weighted)}]"
        return Topology.from_toml(
            f'owns = ["x", "x.slot.*", "x.park"]\n[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n{ring}\n'
            f'[[exchanges]]\nname = "{_FAN}"\ntype = "fanout"\n[[queues]]\nname = "q{{0..4}}"\n'
            + '[[queues]]\nname = "nd"\ndurable = false\n'
            * (passing == "nd")
        )

    def _drawn_argument(self) -> str:
        return ', arguments = { by = "file" }' if self.random.random() < 0.1 else ""

    def managed(self) -> Broker:
        """Return the broker of a user without ``rabbitmqctl``, not open yet."""
        return Broker(self.inside.url, self.inside.management_url)

    def _own(self) -> Broker:
        reads = self.random.random() < 0.4
        self.trail[-1] += " by rabbitmqctl" * reads
        return self.site.connected() if reads else self.managed()

    def _apply(self) -> None:
        wanted = self._drawn()
        self.trail.append(f"  {_shown(wanted)}")
        with self._own() as broker:
            broker.apply(plan(wanted, broker.topology()), allow_moved=1.0, allow_delete=True, allow_loss=True)
        self._has_new_record = True

    def _repair(self) -> None:
        with self._own() as broker:
            live = broker.topology()
            broker.apply(plan(healed(live, X), live), allow_moved=1.0, allow_delete=True, allow_loss=True)
        self._has_new_record = True

    def _die(self) -> None:
        reads = self.random.random() < 0.4
        applier = replace(self.applier, site=self.site, reads=reads, may_fail=True)
        died = applier.killed(self._drawn(), self.random.randrange(_MOST_OPERATIONS))
        self.trail[-1] += f" reads {reads}, died {died}"
        self.site.wait_until_unlocked()
        self._has_new_record = True
        if self.random.random() < 0.5:
            self._note_others(lambda: self._try("start_services"))

    def _record(self) -> None:
        with self.site.connected() as broker:
            broker.record(broker.topology().rings)
        self._has_new_record = True

    def _save(self) -> None:
        """Write the order to a file, for `_record_from`."""
        code, said, _ = self.command("show", X, reads=self.random.random() < 0.5)
        if code == 0:
            self._file.write_text(said)
            self._others_by_file = deepcopy(self._others)
        self.trail[-1] += f" {code}"

    def _record_from(self) -> None:
        files = [self._file, *(history._file for history in self.others)]
        file = next((file for file in files if file.exists() and self.random.random() < 0.7), None)
        if file is None:
            return
        code, said, _ = self.command("record", X, "--from", str(file), "--yes", reads=False)
        self.trail[-1] += f" {file.name} {code} {said[:100]}"
        if code == 0:
            self._others = deepcopy(self._others_by_file)

    def export(self) -> str:
        """Return the topology file of the ring that is true."""
        with self.site.connected() as broker:
            return broker.topology().as_wanted().to_toml()

    def command(
        self, name: str, *arguments: str, reads: bool, management: str = "", source: Sequence[str] = ()
    ) -> tuple[int, str, str]:
        """Run a command in this process, and return its exit code, the JSON document or error that it writes, and its notes.

        Args:
            name: the command.
            arguments: its arguments.
            reads: whether it reads the ring by `source`.
            management: another management API.
            source: another command prefix.
        """
        assert self.inside.management_url is not None
        api = management or self.inside.management_url
        given = ["--url", self.inside.url, "--management-url", api, "-o", "json"]
        via = ["--ring-via", shlex.join(source or self.site.source)] if reads else []
        with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()) as error:
            code = main([name, *arguments, *given, *via])
        return code, said.getvalue() or error.getvalue(), error.getvalue()

    # -- what others do

    def _start_services(self) -> None:
        """Let services start: each declares its queue, and binds it as it was bound when the last record was written, or otherwise."""
        for place in self.random.sample(_QUEUES, self.random.randint(1, 3)):
            known = [(at, key) for at, key, _ in self._bound_by_services if at == place]
            if known and self._may(place, "bound"):
                self.site.channel.queue_declare(place, durable=True)
                self.site.channel.queue_bind(place, X, known[0][1])

    def _declare(self) -> None:
        self.site.channel.exchange_declare(X, CHX, durable=True)

    def _bind_one(self, arguments: dict[str, Any] | None = None) -> None:
        candidates: list[Destination] = [*_QUEUES, ExchangeRef(_FAN)]
        there = [place for place, *_ in self._listed()]
        # A second binding is rarer.
        place = self.random.choice([*candidates, *(each for each in candidates if each not in there)])
        if self._may(place, "bound"):
            self._bind_place(place, arguments)

    def _bind_place(self, place: Destination, arguments: dict[str, Any] | None = None) -> None:
        key, channel = self.random.choice(_WEIGHTS), self.site.channel
        if isinstance(place, str):
            channel.queue_bind(place, X, key, arguments)
        else:
            channel.exchange_bind(place.name, X, key, arguments)

    def _bind(self) -> None:
        self._bind_one()

    def _bind_with_argument(self) -> None:
        self._bind_one({"by": "others"})

    def _unbind(self) -> None:
        listed = [each for each in self._listed() if self._may(each[0], "unbound")]
        if listed:
            self._unbind_it(self.random.choice(listed))

    def _unbind_it(self, binding: Listed) -> None:
        place, _, properties = binding
        kind, name = ("q", place) if isinstance(place, str) else ("e", place.name)
        self.api.delete("bindings", self.name, "e", X, kind, name, properties)

    def _rebind(self) -> None:
        listed = [each for each in self._listed() if each[0] not in self._holders]
        if self.hides and listed:
            place, key, _ = binding = self.random.choice(listed)
            self._unbind_it(binding)
            self._others.unbound.add(place)
            self._others.bound.add(place)
            if isinstance(place, str):
                self.site.channel.queue_bind(place, X, key)
            else:
                self.site.channel.exchange_bind(place.name, X, key)

    def _delete_queue(self) -> None:
        queue = self.random.choice(_QUEUES)
        if self._may(queue, "unbound"):
            self.site.channel.queue_delete(queue)
            self.site.channel.queue_declare(queue, durable=True)

    def _delete_exchange(self) -> None:
        places = {place for place, *_ in self._listed()}
        if all(self._may(place, "unbound") for place in places):
            self._others.unbound |= places
            self.site.channel.exchange_delete(X)
            self._declare()
            if self.hides:
                for _ in range(2):
                    self._bind_one()
                self._others.bound |= {place for place, *_ in self._listed()}

    def _hold_temporary(self) -> None:
        if len(self._holders) < 2:
            self._hold()

    def _hold(self) -> None:
        """Let a program bind a queue that ends with its connection, with a name of its own or of the broker."""
        connection = self._connection()
        channel = connection.channel()
        how = self.random.choice(["exclusive", "auto-delete", "server-named"])
        name = (
            "" if how == "server-named" else next(name for name in _TEMPORARY if name not in self._queues())
        )
        queue = channel.queue_declare(
            name,
            exclusive=how != "auto-delete",
            auto_delete=how == "auto-delete",
            durable=how == "auto-delete",
        ).method.queue
        assert queue is not None
        channel.basic_consume(queue, lambda *_: None)
        self._holders[queue] = connection
        channel.queue_bind(queue, X, self.random.choice(_WEIGHTS))

    def _release_temporary(self) -> None:
        if self._holders:
            self.release(self.random.choice([*self._holders]))

    def _release_all(self) -> None:
        for queue in [*self._holders]:
            self.release(queue)

    def release(self, queue: str) -> None:
        """Close the connection of a temporary queue, which goes with it."""
        with suppress(*_AMQP_ERRORS):
            self._holders.pop(queue).close()
        until(lambda: queue not in self._queues(), f"{queue} is gone")

    def _spoil_mark(self) -> None:
        how = self.random.choice(["purge", "delete", "policy", "publish", "move", "persist"])
        self.trail[-1] += f" {how}"
        channel = self.site.channel
        if how == "purge":
            channel.queue_purge(MARK)
        elif how == "delete":
            channel.queue_delete(MARK)
        elif how == "publish":
            kept = pika.BasicProperties(delivery_mode=self.random.choice([1, 2]))
            channel.basic_publish("", MARK, b"", kept)
        elif how in ("move", "persist"):  # as a shovel there and back does
            self._move_mark(2 if how == "persist" else None)
        else:
            definition = {"max-length": self.random.randrange(2)}
            body = {"pattern": "^rabbit-chx", "apply-to": "queues", "definition": definition}
            self.api.put("policies", self.name, "short", body=body)
            until(lambda: self._count_mark() < 2, "it is short")
            if self.random.random() < 0.5:
                self.api.delete("policies", self.name, "short")

    def _move_mark(self, delivery_mode: int | None) -> None:
        channel = self.site.channel
        taken: list[Any] = list(iter(lambda: channel.basic_get(MARK, auto_ack=True), (None, None, None)))
        for _, properties, body in taken:
            properties.delivery_mode = delivery_mode or properties.delivery_mode
            channel.basic_publish("", MARK, body, properties)
        until(lambda: self._count_mark() == len(taken), "the messages are back")

    def _count_mark(self) -> int:
        return self.site.channel.queue_declare(MARK, passive=True).method.message_count or 0

    def _delete_record(self) -> None:
        self.site.channel.exchange_delete(self.random.choice([record_name(X), record_name(X), PENDING_APPLY]))

    def _move_queue(self) -> None:
        """Move a queue to another node, by a policy of mirrors, which releases before 4.0 have."""
        nodes = sorted(entry["name"] for entry in self.api.get_list("nodes", fields={"name": str}))
        queue, node = self.random.choice(_QUEUES), self.random.choice(nodes)
        if Release(self.inside.version).numbers < (4, 0, 0):
            mirrors = {"ha-mode": "nodes", "ha-params": [node]}
            body = {"pattern": f"^{queue}$", "apply-to": "queues", "definition": mirrors}
            self.api.put("policies", self.name, f"move-{queue}", body=body)
            until(lambda: self.api.get("queues", self.name, queue)["node"] == node, f"{queue} is on {node}")
            self.trail[-1] += f" {queue} to {node}"

    # -- copies

    def definitions(self) -> tuple[Any, list[Any]]:
        """Return the definitions of the vhost, and its exchanges as a script copies them, with those that no export has."""
        exchanges = [
            {name: entry[name] for name in ("name", *_FIELDS)}
            for entry in self.api.get_list("exchanges", self.name, fields={"name": str})
            if entry["name"] and not entry["name"].startswith("amq.")
        ]
        return self.api.get("definitions", self.name), exchanges

    def _import(self, copied: tuple[Any, list[Any]]) -> None:
        definitions, exchanges = copied
        for entry in exchanges:
            with suppress(BrokerRefusedError):
                body = {name: entry[name] for name in _FIELDS}
                self.api.put("exchanges", self.name, entry["name"], body=body)
        self.api.request("POST", "definitions", self.name, body=definitions)

    @contextmanager
    def copied_to(self, broker: RunningBroker) -> Iterator[RingHistory]:
        """Make the vhost on another broker, too, with the records, and with the ring in another order."""
        there = RingHistory((broker,), self.name, self.random, self._file.parent, hides=True)
        definitions, exchanges = self.definitions()
        others = [each for each in definitions["bindings"] if each["source"] != X]  # no queue of a connection
        there._import(({**definitions, "bindings": others}, exchanges))
        there.site.channel.exchange_delete(X)
        there._declare()
        places = {place for place, *_ in self._listed()} & {*_QUEUES, ExchangeRef(_FAN)}
        for place in sorted(places, key=str, reverse=True):
            there._bind_place(place)
        yield there
        there.remove()

    def _back_up(self) -> None:
        self._backup = self.definitions()

    def _restore(self) -> None:
        is_older = self._backup is not None and not self._has_record()
        if self._backup is not None and (self.hides or not (self._others.unbound or is_older)):
            self._import(self._backup)
            if is_older:  # the import has brought back a record of bindings that it has made again
                self._others.bound |= {place for place, *_ in self._listed()}

    def _copy_other(self) -> None:
        if self.others and (self.hides or not self._others.unbound):
            self._import(self.random.choice(self.others).definitions())

    def _make_again(self) -> None:
        """Delete the vhost, and make it again from its definitions, also on another broker."""
        copied = self.definitions()
        self.remove()
        if self.elsewhere is not None and self.random.random() < 0.7:
            self.trail[-1] += " elsewhere"
            before, broker = self.inside, self.elsewhere
            self.elsewhere = in_vhost(before, "/")
            self._move_to(broker)
        self._make_vhost()
        self._import(copied)
        self._begin_anew()

    # -- restarts

    def prepare_restart(self) -> None:
        """Let the queues end that would end with the broker, where that is not to be hidden."""
        if not self.hides and self._has_record():
            self._note_others(self._release_all)

    def after_restart(self, how: str) -> None:
        """Connect again."""
        self.trail.append(f"{how} of the broker")
        self.disconnect()
        self.connect()
        if self.random.random() < 0.5:
            self._note_others(lambda: self._try("start_services"))
        self.trail.append(f"  now {self._bindings()}{', hidden' if self.is_hidden else ''}")


def _shown(wanted: Topology) -> str:
    members = (member for exchange in wanted.exchanges for member in exchange.ring or ())
    return " ".join(f"{member.destination!s}={member.key}" for member in members)


#: What happens to clusters only.
_OF_CLUSTERS = {"move_queue": 3}
_OWN = {"apply": 5, "repair": 1, "die": 3, "record": 3, "save": 1, "record_from": 1}
_OF_OTHERS = {
    "bind": 6,
    "bind_with_argument": 1,
    "unbind": 5,
    "rebind": 1,
    "start_services": 3,
    "delete_queue": 2,
    "delete_exchange": 1,
    "hold_temporary": 3,
    "release_temporary": 3,
    "spoil_mark": 1,
    "delete_record": 1,
    "back_up": 1,
    "restore": 2,
    "copy_other": 1,
    "make_again": 1,
}
