"""A simulated broker: it keeps what it confirms, and a scenario decides what goes wrong.

It confirms as rabbitmq-server v4.3.0 does, rabbit_channel.erl, send_confirms_and_nacks/1 and coalesce_and_send/4: all messages
that became safe in one tick are acked together, with `multiple` below the first message that is open or that the same tick refuses.
A message is in its queue when it arrives. Until it is safe, a kill may remove it and all unsafe messages after it in that queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple, TypeAlias

from amqp_broker import ACK, BLOCKED, NACK, UNBLOCKED, BrokerConnection, Message, confirm, returned
from broker_frames import said
from pamqp import commands
from simulated_network import Line
from simulated_scenarios import UNROUTABLE, Fault, Scenario
from simulated_world import World

from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.routing import HashRing

#: The ring of the broker's exchange.
RING = HashRing.from_buckets(["q0", "q1", "q2", "q3"])


@cache
def queue_for(key: str) -> str | None:
    """Return the queue of a key by the ring; None if it has no queue."""
    return None if key.startswith(UNROUTABLE) else str(RING.destination_for(key))


@dataclass(eq=False, slots=True)
class Copy:
    """A message in a queue.

    Attributes:
        id: the row's.
        queue: the queue.
        safe: whether a kill leaves it.
    """

    id: int
    queue: str
    safe: bool = False


class Broker:
    """The broker of a run.

    Args:
        world: the clock.
        scenario: what goes wrong.

    Attributes:
        complaints: violations of the protocol by clients.
        queues: the messages of each queue.
        refused: messages that it nacked.
        returned: messages that it returned.
        hung_up: sound connections that it closed for missing heartbeats.
        conversations: its connections, oldest first.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.complaints: list[str] = []
        self.queues: dict[str, list[Copy]] = {str(queue): [] for queue in RING.destinations}
        self.refused = self.returned = self.hung_up = 0
        self.conversations: list[Conversation] = []
        self._safe = dict.fromkeys(self.queues, 0)  # how many are safe; they are the first ones
        began = world.now
        self._periods: dict[str, list[tuple[float, float]]] = {}
        self.closed = 0  # channels and connections, for a row or by a fault
        self.poison = {fault.byte: fault for fault in scenario.of_broker if fault.kind == "poison"}
        for fault in scenario.of_broker:
            self._periods.setdefault(fault.kind, []).append((began + fault.at, began + fault.until))
        for start, _ in self._periods.get("killed", ()):
            world.at(start, self._kill)
        for start, end in self._periods.get("alarm", ()):
            world.at(start, self._tell_alarm)
            if end < math.inf:
                world.at(end, self._tell_alarm)

    def end_of(self, kind: str) -> float | None:
        """Return the end of the current period of this kind; None outside of one."""
        periods = self._periods.get(kind)
        if periods is None:
            return None
        now = self.world.now
        return max((end for start, end in periods if start <= now < end), default=None)

    @property
    def is_down(self) -> bool:
        """True while nobody listens."""
        return self.end_of("killed") is not None

    @property
    def alarm(self) -> bool:
        """True while publishers must wait."""
        return self.end_of("alarm") is not None

    def when_awake(self, happens: Callable[[], None]) -> None:
        """Call this now, or at the end of the current freeze."""
        end = self.end_of("frozen")
        if end is None:
            happens()
        elif end < math.inf:
            self.world.at(end, lambda: self.when_awake(happens))

    def accept(self, line: Line, faults: list[Fault], frame_max: int) -> None:
        """Serve the client of this line."""
        conversation = Conversation(self, line, faults, frame_max)
        line.up.arrived, line.server_ended = conversation.receive, conversation.ended
        self.conversations.append(conversation)

    # -- messages

    def route(self, exchange: str, key: str) -> str | None:
        """Return the queue of a message; in the default exchange its key is the name of the queue."""
        if self.end_of("unbound") is not None:
            return None
        return queue_for(key) if exchange else key if key in self.queues else None

    def store(self, id_: int, queue: str) -> Copy:
        """Put a message into its queue."""
        copy = Copy(id_, queue)
        self.queues[queue].append(copy)
        return copy

    def secure(self, copy: Copy) -> None:
        """Make a message safe, and all before it in its queue, as a log does."""
        queue = self.queues[copy.queue]
        while not copy.safe:
            queue[self._safe[copy.queue]].safe = True
            self._safe[copy.queue] += 1

    @property
    def found(self) -> dict[str, list[int]]:
        """The ids in each queue."""
        return {queue: [copy.id for copy in copies] for queue, copies in self.queues.items()}

    # -- what happens to it

    def _kill(self) -> None:
        for conversation in self.conversations:
            conversation.die()
        for name, copies in self.queues.items():
            del copies[self.world.chance.randint(self._safe[name], len(copies)) :]
            if copies:
                self.secure(copies[-1])

    def _tell_alarm(self) -> None:
        for conversation in self.conversations:
            self.when_awake(conversation.heed_alarm)


#: In a queue and acked; returned and acked; nacked.
AnswerKind: TypeAlias = Literal["stored", "returned", "refused"]


class Answer(NamedTuple):
    """The broker's answer for a row.

    Attributes:
        id: the row's.
        end: the number of bytes from the broker up to the end of its frame.
    """

    id: int
    kind: AnswerKind
    end: int


class Conversation(BrokerConnection):
    """A connection to a client.

    Args:
        broker: the state that all connections share.
        line: the connection.
        faults: what goes wrong with it.
        frame_max: the offered largest frame, in bytes.

    Attributes:
        answers: those that were sent, in order.
    """

    def __init__(self, broker: Broker, line: Line, faults: list[Fault], frame_max: int) -> None:
        super().__init__(line.down.write, frame_max=frame_max, heartbeat_s=broker.scenario.heartbeat_s)
        self.line = line
        self.answers: list[Answer] = []
        self._broker = broker
        self._world = broker.world
        self._faults = {fault.kind: fault for fault in faults}
        kinds = ("connection.close", "channel.close", "nonsense")
        self._ends = {fault.byte: fault for fault in faults if fault.kind in kinds}
        self.is_deaf = "mute" in self._faults
        self._said = 0
        self._open: dict[int, tuple[int, bool]] = {}  # by tag the row, and whether it was returned
        self._copies: dict[int, Copy] = {}
        self._permitted: set[str] = set()  # exchanges: a channel asks once for each
        self._due: dict[int, list[tuple[int, bool]]] = {}  # by tick the tags, and whether they are refused
        self._last_said = self._last_heard = self._world.now

    # -- the line

    def receive(self, data: bytes) -> None:
        """Process bytes of the client, once the broker is not frozen."""
        self._last_heard = self._world.now
        self.buffer += data
        self._broker.when_awake(self.read)

    def ended(self) -> None:
        """Process what the client has sent before it closed the connection."""
        self._broker.when_awake(self.read)

    def read(self) -> None:
        """Process whole frames; a blocked client is held back by its socket."""
        super().read()
        if self.is_greeted or self.is_deaf:
            self.line.up.shut(shut=self.is_paused and len(self.buffer) > 65_536)

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._said += len(data)
        self._last_said = self._world.now
        self.send(data)

    def die(self) -> None:
        """End with the broker, and forget everything."""
        self.is_deaf = True
        self.line.cut(ConnectionResetError(104, "Connection reset by peer"))

    def hang_up(self) -> None:
        """Close the connection."""
        self.is_deaf = True
        self.line.close_by_server()

    def on_violation(self, text: str) -> None:
        """Keep it, and close the connection."""
        self._broker.complaints.append(text)
        self.hang_up()

    def on_start_ok(self) -> None:
        """Accept the login, or not."""
        if (denial := self._faults.get("denied")) is not None:
            self._close_connection(denial)
        else:
            super().on_start_ok()

    def on_tune_ok(self, payload: bytes) -> None:
        """Begin with heartbeats."""
        super().on_tune_ok(payload)
        if self.heartbeat_s:
            self._world.after(self.heartbeat_s / 2, self._beat)

    # -- messages

    def on_publish(self) -> None:
        """Block the client while there is an alarm."""
        if self._broker.alarm and not self.is_paused:
            self._block()

    def on_message(self, message: Message) -> None:
        """Store, return or refuse a row, and answer later."""
        if self.published in self._ends:
            self._end(self._ends[self.published])
            return
        id_ = int(message.body[: message.body.index(b" ")])
        self._check(id_, message)
        if (refusal := self._find_refusal(message.exchange)) is not None:
            self._end(refusal)
            return
        self._permitted.add(message.exchange)
        if id_ in self._broker.poison:
            queue = self._broker.route(message.exchange, message.routing_key)
            # The checks that end in a 4xx come before the routing; an error inside may come behind it.
            is_stored = queue is not None and self._world.chance.random() < 0.5
            if queue is not None and is_stored and self._broker.poison[id_].code >= 500:
                self._broker.store(id_, queue)
            self._end(self._broker.poison[id_])
            return
        self._decide(id_, message)

    def _find_refusal(self, exchange: str) -> Fault | None:
        """Return the close over a publish to this exchange, as of rabbit_channel.erl: the permission is asked for first, and once."""
        if self._broker.end_of("forbidden") is not None and exchange not in self._permitted:
            text = f"ACCESS_REFUSED - access to exchange '{exchange}' in vhost '/' refused for user 'guest'"
            return Fault("channel.close", code=403, text=text)
        if self._broker.end_of("missing") is not None:
            return Fault("channel.close", code=404, text=f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
        return None

    def _check(self, id_: int, message: Message) -> None:
        """Compare the row with that of the program."""
        scenario = self._broker.scenario
        program, key, exchange = scenario.program, message.routing_key, message.exchange
        # Where the client routes, the routing key is a queue; the checker verifies that it is the right one.
        routed = not exchange and scenario.publisher.get("routing") == "client"
        if not message.mandatory:
            self.on_violation("a publish that is not mandatory")
        if message.body != program.row_bodies[id_] or not (routed or key == program.row_keys[id_]):
            self.on_violation(f"row {id_} arrived with the key {key!r} and the body {message.body[:40]!r}")
        if program.columns and (
            exchange != program.exchange_of(id_) or not message.content.endswith(b"%d" % id_)
        ):
            self.on_violation(f"row {id_} arrived with the exchange {exchange!r} and {message.content!r}")

    def _decide(self, id_: int, message: Message) -> None:
        broker, chance, tag = self._broker, self._world.chance, message.tag
        queue = broker.route(message.exchange, message.routing_key)
        scenario = broker.scenario
        refused = False
        if queue is None:
            broker.returned += 1
            self.say(
                returned(message.exchange, message.routing_key, message.body, message.content, self.frame_max)
            )
        elif broker.end_of("full") is not None or (scenario.nacks and chance.random() < scenario.nacks):
            refused = True
            broker.refused += 1
            if chance.random() < 0.1:  # one of the queue's nodes may have it all the same
                broker.store(id_, queue)
        else:
            self._copies[tag] = broker.store(id_, queue)
        self._open[tag] = id_, queue is None
        delay = scenario.confirm_s * chance.random() if queue is not None and not refused else 0.0
        tick = int((self._world.now + delay) / scenario.tick_s) + 1
        if tick not in self._due:
            self._due[tick] = []
            self._world.at(
                tick * scenario.tick_s, partial(self._broker.when_awake, partial(self._answer, tick))
            )
        self._due[tick].append((tag, refused))

    def _answer(self, tick: int) -> None:
        due = sorted(self._due.pop(tick, ()))
        if not due or self.is_deaf or self.line.over:
            return  # the queues have them; a kill may still remove them
        acks = [tag for tag, refused in due if not refused]
        nacks = [tag for tag, refused in due if refused]
        for tag in acks:
            if (copy := self._copies.pop(tag, None)) is not None:
                self._broker.secure(copy)
        rows = {tag: self._open.pop(tag) for tag, _ in due}
        oldest = next(iter(self._open), self.published + 1)
        self._confirm(ACK, acks, min([oldest, *nacks]), rows)
        self._confirm(NACK, nacks, min([oldest, *acks]), rows)

    def _confirm(self, method: int, tags: list[int], cutoff: int, rows: dict[int, tuple[int, bool]]) -> None:
        """Confirm all tags below the cut-off at once, and each other one alone."""
        together = [tag for tag in tags if tag < cutoff]
        for group in ([together] if together else []) + [[tag] for tag in tags if tag >= cutoff]:
            self.say(confirm(method, group[-1], multiple=group is together))
            for tag in group:
                id_, was_returned = rows[tag]
                kind: AnswerKind = "refused" if method == NACK else "returned" if was_returned else "stored"
                self.answers.append(Answer(id_, kind, self._said))

    def heard(self) -> Iterator[Answer]:
        """Yield the answers that the client has read."""
        return (answer for answer in self.answers if answer.end <= self.line.heard)

    # -- faults

    def _end(self, fault: Fault) -> None:
        if fault.kind == "nonsense":
            self.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self.hang_up()
        elif fault.kind == "channel.close" or (fault.kind == "poison" and fault.code < 500):
            self._broker.closed += 1
            self.say(said(commands.Channel.Close(fault.code, fault.text, 60, 40)))
            self.is_channel_closed = True
            self._due.clear()
        else:
            self._close_connection(fault)

    def _close_connection(self, fault: Fault) -> None:
        self._broker.closed += 1
        self.say(said(commands.Connection.Close(fault.code, fault.text, 0, 0), 0))
        self.hang_up()

    def heed_alarm(self) -> None:
        """Block the client while there is an alarm, and unblock it afterwards."""
        if self._broker.alarm:
            if self.published and not (self.is_paused or self.is_deaf or self.line.over):
                self._block()
        elif self.is_paused:
            self.is_paused = False
            self._last_heard = self._world.now
            self.say(UNBLOCKED)
            self.read()

    def _block(self) -> None:
        self.is_paused = True
        self.say(BLOCKED)

    # -- heartbeats

    def _beat(self) -> None:
        if not (self.is_deaf or self.line.over):
            self._broker.when_awake(self._beat_awake)

    def _beat_awake(self) -> None:
        if self.is_deaf or self.line.over:
            return
        now = self._world.now
        if not self.is_paused and now - self._last_heard > 2 * self.heartbeat_s:
            self._broker.hung_up += not (self._faults or self.is_channel_closed)
            self.hang_up()
            return
        if "no heartbeats" not in self._faults and now - self._last_said >= self.heartbeat_s / 2:
            self.say(HEARTBEAT_FRAME)
        self._world.after(self.heartbeat_s / 2, self._beat)
