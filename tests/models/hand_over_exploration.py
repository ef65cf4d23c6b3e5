"""Every way in which slots can change hands: explored, and checked at each message and in each end.

The mover is the code that runs in production, and the consumers are the `QueueOwnership` that does. A publisher publishes meanwhile. What
the broker routes arrives some time later. The mover or a consumer dies at any step, and another one takes its place.

    python tests/models/hand_over_exploration.py                    # all sizes
    python tests/models/hand_over_exploration.py in-order 1 3 1 0 0 0   # slots, messages, deaths of movers and members, leaves, early time-outs
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hand_over_model import PREFETCH, Entry, Item, Place
from hand_over_mover import Mover, Request
from state_search import BrokenModelError, Found, searched

from rabbit_chx.broker.live_broker import Operation, QueueCounts
from rabbit_chx.consuming.ownership import POLL, Ack
from rabbit_chx.topology.objects import BindingDefinition


@dataclass
class HandOverWorld:
    """One state of everything."""

    level: Literal["parked", "in-order"]
    slots: list[tuple[str, ...]]
    messages: int
    mover_deaths: int = 0
    member_deaths: int = 0
    leaves: int = 0
    early: int = 0
    queues: dict[str, list[Entry]] = field(default_factory=lambda: {"old": [], "new": [], "park": []})
    routed: list[tuple[str, Item, bool]] = field(default_factory=list)  # and whether a binding changed since
    published: int = 0
    places: dict[str, Place] = field(default_factory=dict)
    mover: Mover | None = None
    runs: int = 0
    replies: set[str] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    repeatable: set[int] = field(default_factory=set)
    mover_died: bool = False
    died: bool = False  # a member
    late: bool = False
    overtaken: bool = False

    def key(self) -> Hashable:
        """Return the key that identifies this state."""
        rest = {
            name: repr(value)
            for name, value in vars(self).items()
            if name not in ("places", "replies", "started", "repeatable")
        }
        sets = tuple(tuple(sorted(members)) for members in (self.replies, self.started, self.repeatable))
        return tuple(rest.values()), sets, tuple(place.key() for place in self.places.values())

    # -- what can happen

    def choices(self) -> Iterator[tuple[Any, ...]]:
        """Return what can happen now. A wait ends without its cause if nothing else can happen, or as an early time-out."""
        some = [*self._broker_choices(), *self._mover_choices()]
        for place in self.places.values():
            some += self._place_choices(place)
        yield from some
        moves = [choice for choice in some if choice[0] not in ("mover dies", "member dies", "leave")]
        if not moves or self.early:
            late = not moves
            step = self._step()
            if step and step.name == "wait_for_reply":
                yield ("no reply", late)
            for name, place in self.places.items():
                if place.taking and not place.asks_park:
                    yield "end late", name, late

    def _broker_choices(self) -> Iterator[tuple[Any, ...]]:
        if self.published < self.messages:
            yield ("publish",)
        seen: set[str] = set()
        for number, (queue, _, _) in enumerate(self.routed):
            if queue not in seen:  # one publisher: what goes to one queue keeps its order
                seen.add(queue)
                yield "arrive", number

    def _mover_choices(self) -> Iterator[tuple[Any, ...]]:
        if self.mover is None:
            if self.runs == 0 or (self.mover_died and self.runs == 1):
                yield ("mover starts",)
            return
        step = self._step()
        assert step is not None
        match step:
            case Request("sleep"):
                waits = any(stale for _, _, stale in self.routed)
            case Request("wait_for_reply", (_, kind)):
                waits = kind not in self.replies
            case Request("move_messages", (_, _, limit)):
                waits = self._move_waits(limit)
            case _:
                waits = False
        if not waits:
            yield ("mover", step.name)
        if self.mover_deaths:
            yield ("mover dies",)

    def _move_waits(self, limit: int) -> bool:
        assert self.mover is not None
        more = self.mover.done < limit and self._ready("park") is not None
        return not more and any(queue and item.reply_to == "copy" for queue, item, _ in self.routed)

    def _place_choices(self, place: Place) -> Iterator[tuple[Any, ...]]:
        name = place.queue
        entry = self._ready(name)
        held = sum(entry.holder is not None for entry in self.queues[name])
        if entry and held < PREFETCH and not place.ownership.is_stopping:
            yield "deliver", name
        if place.to_broker:
            yield "send", name
        for tag, _ in place.running:
            yield "handle", name, tag
        if place.asks_park:
            yield "fetch", name
        if place.polls and self._ready("park"):  # an empty answer changes nothing
            yield "poll", name
        if self.member_deaths:
            yield "member dies", name
        if self.leaves and not place.ownership.is_stopping:
            yield "leave", name

    def _ready(self, queue: str) -> Entry | None:
        return next((entry for entry in self.queues[queue] if entry.holder is None), None)

    # -- the mover

    def _step(self) -> Request | None:
        return None if self.mover is None else self.mover.step()

    def _move(self) -> None:
        mover, step = self.mover, self._step()
        assert mover is not None
        match step:
            case Request("perform", (operation,)):
                self._bind(operation)
                mover.answers.append(None)
            case Request("perform_together", operations):
                self._bind(operations[mover.done])
                mover.done += 1
                if mover.done == len(operations):
                    mover.answers.append(True)
                    mover.done = 0
            case Request("count"):
                ready = sum(entry.holder is None for entry in self.queues["park"])
                mover.answers.append(QueueCounts(ready, 0))
            case Request("move_messages", (_, _, limit)):
                self._move_message(mover, limit)
            case Request("send_marker", (queue, marker)):
                self.queues[queue].append(Entry(Item(0, 0, marker, marker.id)))
                mover.answers.append(None)
            case Request("wait_for_reply", (_, kind)):
                self.replies.discard(kind)
                mover.answers.append(True)
            case Request("sleep"):
                mover.answers.append(None)
            case _:
                raise BrokenModelError(f"the mover asks for {step}")
        if self._step() is None:
            self.mover = None

    def _bind(self, operation: Operation) -> None:
        binding = operation.subject
        assert isinstance(binding, BindingDefinition)
        slot, queue = int(binding.source.rpartition(".")[2]), str(binding.destination)
        others = tuple(bound for bound in self.slots[slot] if bound != queue)
        self.slots[slot] = (*others, queue) if operation.action == "bind" else others
        self.routed = [(queue, item, True) for queue, item, _ in self.routed]

    def _move_message(self, mover: Mover, limit: int) -> None:
        entry = self._ready("park")
        if entry and mover.done < limit:
            entry.holder = ("mover", 0)
            mover.done += 1
            self._route(Item(entry.item.number, entry.item.slot, entry.item.marker, "copy"))
            return
        self.queues["park"] = [entry for entry in self.queues["park"] if entry.holder != ("mover", 0)]
        mover.answers.append(mover.done)
        mover.done = 0

    def _route(self, item: Item) -> None:
        self.routed += [(queue, item, False) for queue in self.slots[item.slot] or ("park",)]

    # -- what happens

    def do(self, choice: tuple[Any, ...]) -> None:
        """Let something happen.

        Args:
            choice: one of the choices.
        """
        match choice:
            case ("publish",):
                self.published += 1
                self._route(Item(self.published, self.published % len(self.slots)))
            case ("arrive", number):
                queue, item, _ = self.routed.pop(number)
                reply_to = None if item.reply_to == "copy" else item.reply_to
                self.queues[queue].append(Entry(Item(item.number, item.slot, item.marker, reply_to)))
            case ("mover starts",):
                self.runs += 1
                self.replies.clear()
                self.mover = Mover(self.runs, self.level, tuple(self.slots))
            case ("mover", _):
                self._move()
            case ("mover dies",):
                self.mover, self.mover_died = None, True
                self.mover_deaths -= 1
                self.repeatable |= {
                    entry.item.number for entry in self.queues["park"] if entry.holder == ("mover", 0)
                }
                self._release("mover")
            case ("no reply", late):
                self.early -= not late
                self.late = True
                assert self.mover is not None
                self.mover.answers.append(False)
            case (what, name, *rest):
                self._do_at(self.places[name], what, rest)

    def _do_at(self, place: Place, what: str, rest: list[Any]) -> None:
        name, ownership = place.queue, place.ownership
        line = ownership.subscription.number if ownership.subscription else 0
        if what == "send":
            self._send(place)
        elif what == "deliver":
            self._start(place, ownership.on_delivered(line, self._held(place, name)))
        elif what == "handle":
            place.running = [handler for handler in place.running if handler[0] != rest[0]]
            self._start(place, ownership.on_handled(line, rest[0]))
        elif what == "fetch":
            place.asks_park = False
            self._start(
                place, ownership.on_fetched(line, self._held(place, "park") if self._ready("park") else None)
            )
        elif what == "poll":
            place.polls = False
            self._start(place, ownership.on_timer(line, POLL))
        elif what == "end late":
            assert place.taking is not None, "the choice needs its timer"
            self.early -= not rest[0]
            self.late = True
            self._start(place, ownership.on_timer(line, place.taking))
        elif what == "leave":
            self.leaves -= 1
            self._start(place, ownership.stop())
        else:
            self.member_deaths -= 1
            self.died = True
            self.repeatable |= {item.number for _, item in place.running}
            self.repeatable |= {
                place.held[command.tag].number for command in place.to_broker if isinstance(command, Ack)
            }
            self._follow(place)
            return
        if ownership.is_stopping and ownership.is_finished and not place.to_broker:
            self._follow(place)

    def _held(self, place: Place, queue: str) -> Any:
        entry = self._ready(queue)
        assert entry is not None
        delivery = place.delivery(entry.item)
        entry.holder = (place.queue, delivery.tag)
        return delivery

    def _send(self, place: Place) -> None:
        command = place.to_broker.pop(0)
        if not isinstance(command, Ack):
            if self.mover is not None and command.marker.id == str(self.mover.run):
                self.replies.add(command.marker.kind)
            return
        del place.held[command.tag]
        for name, entries in self.queues.items():
            self.queues[name] = [entry for entry in entries if entry.holder != (place.queue, command.tag)]

    def _follow(self, place: Place) -> None:
        """Let another member follow."""
        self._release(place.queue)
        self.places[place.queue] = Place(place.queue)
        self.places[place.queue].begin()

    def _release(self, holder: str) -> None:
        for entry in (entry for entries in self.queues.values() for entry in entries):
            if entry.holder and entry.holder[0] == holder:
                entry.holder = None

    # -- what must hold

    def _start(self, place: Place, commands: list[Any]) -> None:
        for item in place.take(commands):
            if item.number in self.started:
                if item.number not in self.repeatable:
                    raise BrokenModelError(f"message {item.number} is repeated, and nobody that died held it")
            elif self._is_overtaken(item):
                self.overtaken = True
                if not (self.mover_died or self.late):
                    raise BrokenModelError(f"message {item.number} is started after {sorted(self.started)}")
            self.started.add(item.number)

    def _is_overtaken(self, item: Item) -> bool:
        """Whether a message is started before an earlier one of its slot, or after a later one."""
        slots = len(self.slots)
        slot = [number for number in range(1, self.messages + 1) if number % slots == item.slot]
        return any(
            (number in self.started) != (number < item.number) for number in slot if number != item.number
        )

    def check_end(self) -> str:
        """Return the kind of this end."""
        faults = []
        if any(bound != ("new",) for bound in self.slots):
            faults.append(f"the slots are bound to {self.slots}")
        left = {name: [entry.item for entry in entries] for name, entries in self.queues.items()}
        everything = [item.number for items in left.values() for item in items]
        # A marker that a dead member gave back when the last mover had ended waits for the next mover, and blocks nobody.
        marker_left = self.mover_died and self.died and bool(left["park"]) and not any(everything)
        if (left["park"] and not marker_left) or (self.places and (left["old"] or left["new"])):
            faults.append(f"there is left {left}")
        if not self.places:
            self.started = set(everything)
            twice = {number for number in everything if everything.count(number) > 1}
            if twice - self.repeatable:
                faults.append(f"{twice} are there twice")
        if self.started != set(range(1, self.messages + 1)):
            faults.append(f"only {sorted(self.started)} are there")
        if any(place.taking or place.held or place.ownership.is_stopping for place in self.places.values()):
            faults.append("a member does not get to an end")
        if faults:
            raise BrokenModelError("; ".join(faults))
        if marker_left:
            return "with a marker in the park"
        return "overtaken" if self.overtaken else "in their order" if self.places else "complete"


def hand_overs_explored(
    level: Literal["parked", "in-order"],
    slots: int,
    messages: int,
    *,
    mover_deaths: int = 0,
    member_deaths: int = 0,
    leaves: int = 0,
    early: int = 0,
) -> Found:
    """Go through all states of a hand-over.

    Args:
        level: how slots change hands. Where it is ``parked``, nobody consumes the queues, since consumers have no part in it.
        slots: how many slots change hands.
        messages: how many messages are published meanwhile, to one slot after the other.
        mover_deaths: how many movers may die.
        member_deaths: how many consumers may die.
        leaves: how many consumers may leave.
        early: how many waits may end too early.

    Raises:
        BrokenModelError: an invariant does not hold; the error lists the steps that lead there.
    """
    world = HandOverWorld(level, [("old",)] * slots, messages, mover_deaths, member_deaths, leaves, early)
    if level == "in-order":
        world.places = {name: Place(name) for name in ("old", "new")}
        for place in world.places.values():
            place.begin()
    return searched(world)


_SIZES = [
    "parked 4 3 1 0 0 0",
    "in-order 1 3 0 0 0 0",
    "in-order 1 2 0 1 0 0",
    "in-order 1 2 0 0 1 0",
    "in-order 1 2 1 0 0 0",
    "in-order 1 2 0 0 0 1",
    "in-order 1 1 1 1 0 0",
    "in-order 2 2 0 0 0 0",
]


def main() -> None:
    """Explore, and print how much there was."""
    for size in [" ".join(sys.argv[1:])] if sys.argv[1:] else _SIZES:
        level, *numbers = size.split()
        slots, messages, *rest = map(int, numbers)
        others = dict(zip(("mover_deaths", "member_deaths", "leaves", "early"), rest, strict=True))
        result = hand_overs_explored("parked" if level == "parked" else "in-order", slots, messages, **others)
        print(f"{level}: {slots} slots, {messages} messages, {others}: {result}", flush=True)


if __name__ == "__main__":
    main()
