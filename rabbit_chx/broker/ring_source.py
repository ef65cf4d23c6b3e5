"""Ring sources: the true ring of an exchange, bucket by bucket, from the broker's tools or their saved output.

AMQP and the management API do not return it. ``rabbitmqctl eval`` returns all of it, on every release, including the kind of
each destination and the number of the next bucket. ``rabbitmq-diagnostics consistent_hash_exchange_ring_state`` returns less: it crashes if
an exchange is a destination, it prints names by the broker's locale, and it omits the number of the next bucket. So only its saved output
is read, with and without ``--formatter json``. Names are read unchanged, whatever text they contain.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TypeVar

from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID
from rabbit_chx.errors import InputError, NotFoundError, RingSourceError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.subprocesses import OutputTooLongError, run_program
from rabbit_chx.text import error_text, outline, plural, without_secrets

_NAME = r"[0-9]{1,620}"  # 256 bytes
_ENTRY = rf"\{{([0-9]{{1,7}}),(queue|exchange),({_NAME})\}}"
_TERM = re.compile(
    rf"\{{ring,(?:(?P<vhost>{_NAME}),(?P<exchange>{_NAME}),(?P<next>[0-9]{{1,7}}),)?"
    rf"\[(?P<entries>(?:{_ENTRY}(?:,{_ENTRY})*)?)\]\}}"
)
_NOT_FOUND = re.compile(r"\s*\{\s*error\s*,\s*not_found\s*\}\s*")
_ABSENT = re.compile(r"\{error,not_found\}")
_RINGS = "{rings,["
_END = re.compile(rf"\],([0-9]{{1,19}}|undefined)(?:,({_NAME}),\[({_NAME})?\])?\}}")
_EXCHANGE = re.compile(rf"\{{exchange,\[((?:\{{{_NAME},{_NAME}\}},?)*)\],(.*)\}}")
_LINE = re.compile(r"Ring index: ([0-9]{1,7}), queue: '(.*)'")
_BANNER = "Inspecting consistent hashing ring state for exchange "
_NO_RING = "Exchange does not exist or is of a different type"
_UNREAD = "the ring was not read: "
_LONGEST_OUTPUT = 1 << 28


class ReadBuckets(tuple["Destination | None", ...]):  # noqa: SLOT001 - a subclass of tuple cannot have nonempty slots
    """The destination of bucket 0, 1 and so on, None at a hole: a tuple.

    Attributes:
        next_bucket: the number of the next bucket that the broker makes. It is the length of this tuple, including holes at the end; None
            if the output does not contain it.
    """

    next_bucket: int | None

    def __new__(cls, buckets: Iterable[Destination | None] = (), next_bucket: int | None = None) -> Self:
        """Create the tuple of the buckets, with the number of the next bucket."""
        ring = super().__new__(cls, buckets)
        ring.next_bucket = next_bucket
        return ring


def eval_expression(vhost: str, exchange: str) -> str:
    """Return an Erlang expression for ``rabbitmqctl eval`` that prints the ring, with kinds, in plain ASCII.

    Mirrors rabbitmq-server v4.3.6, rabbit_exchange_type_consistent_hash.erl, ``ring_state/2`` and the record ``chx_hash_ring``, unchanged
    since 3.8.5. Names are passed as lists of bytes and returned as whole numbers (with a 1 before the first byte). So quotes, line breaks,
    alphabets and locales do not matter.
    """
    arguments = ", ".join(map(_binary, (vhost, exchange)))
    return f"case rabbit_exchange_type_consistent_hash:ring_state({arguments}) of {_RING_CASE} end."


#: The parsed answer of ring_state: a term of numbers and atoms.
_RING_CASE = (
    "{ok, Ring} -> Number = fun(Name) -> binary:decode_unsigned(<<1, Name/binary>>) end, Of = element(2, Ring), "
    "{ring, Number(element(2, Of)), Number(element(4, Of)), element(4, Ring), "
    "[{Bucket, element(3, To), Number(element(4, To))} "
    "|| {Bucket, To} <- lists:sort(maps:to_list(element(3, Ring)))]}; "
    "Other -> Other"
)


def _binary(name: str) -> str:
    return f"<<{','.join(map(str, name.encode()))}>>"


class NodeFacts(NamedTuple):
    """What the expression of several rings shows of the broker beside them.

    Attributes:
        consumer_timeout_ms: the default consumer timeout in milliseconds; None if the broker has none.
        cluster_name: the name of the cluster.
        lock_id: the argument of the queue by which an application of a plan keeps others out; None if it is not there.
        nodes: the nodes of the cluster; of saved output of an earlier version none.
        connections: the names of connections of this program.
    """

    consumer_timeout_ms: int | None = None
    cluster_name: str | None = None
    lock_id: str | None = None
    nodes: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()


def eval_of_all(vhost: str, exchanges: Iterable[str]) -> str:
    """Return an Erlang expression that prints the rings of several exchanges, and `NodeFacts`.

    `eval_expression` prints a single ring. The timeout is that of rabbitmq-server v4.3.6, rabbit_queue_type.erl, ``get_consumer_timeout/2``.
    """
    names = ",".join(map(_binary, exchanges))
    rings = f"case rabbit_exchange_type_consistent_hash:ring_state({_binary(vhost)}, Exchange) of {_RING_CASE} end"
    lock = f"rabbit_misc:r({_binary(vhost)}, queue, {_binary(APPLY_LOCK)})"
    ids = f"{{Argument, longstr, Id}} <- amqqueue:get_arguments(Queue), Argument =:= {_binary(LOCK_ID)}"
    lock_id = f"case rabbit_amqqueue:lookup({lock}) of {{ok, Queue}} -> [{_ID} || {ids}]; _ -> [] end"
    return f"{{rings, [{rings} || Exchange <- [{names}]], {_TIMEOUT_CASE}, {_CLUSTER}, {lock_id}}}."


_TIMEOUT_CASE = "case application:get_env(rabbit, consumer_timeout) of {ok, Ms} when is_integer(Ms) -> Ms; _ -> undefined end"
#: What the name of a connection of this program contains.
CONNECTION_NAME = "rabbit-chx "
#: The name of the cluster, its nodes, and the names of our connections, on a line each. No name has a line break. The
#: second function is that of releases before 3.13.
_CLUSTER = (
    "binary:decode_unsigned(iolist_to_binary([1, rabbit_nodes:cluster_name(), [[10, atom_to_list(Node)] || Node <- "
    "try rabbit_nodes:list_members() catch error:undef -> rabbit_mnesia:cluster_nodes(all) end], [[10, Client] || "
    "[{_, Properties}] <- rabbit_networking:connection_info_all([client_properties]), {_, longstr, Client} <- Properties, "
    f"binary:match(Client, [{_binary(CONNECTION_NAME)}]) =/= nomatch, binary:match(Client, [<<10>>]) =:= nomatch]]))"
)
_ID = "binary:decode_unsigned(<<1, Id/binary>>)"


def read_eval_of_all(
    text: str, vhost: str, exchanges: Sequence[str]
) -> tuple[dict[str, ReadBuckets], NodeFacts]:
    """Read the rings by name, and the facts beside them, from the output of `eval_of_all` for the same exchanges.

    An exchange that does not exist is left out.

    Raises:
        RingSourceError: the text is not such output, or has the ring of another exchange.
    """
    plain = "".join(text.split())
    rings: dict[str, ReadBuckets] = {}
    start = len(_RINGS)
    end = _END.search(plain, start)
    if plain.startswith(_RINGS) and end is not None:
        for exchange in exchanges:
            term = _TERM.match(plain, start) or _ABSENT.match(plain, start)
            if term is None:
                break
            if not _ABSENT.match(plain, start):
                rings[exchange] = read_eval(term[0], vhost, exchange)
            start = term.end() + 1
        else:
            if max(start - 1, len(_RINGS)) == end.start() and end.end() == len(plain):
                timeout_ms = None if end[1] == "undefined" else int(end[1])
                cluster, lock_id = (text and _name(text) for text in end.groups()[1:])
                name, *lines = (cluster or "").split("\n")
                clients = [line for line in lines if CONNECTION_NAME in line]
                nodes = [line for line in lines if CONNECTION_NAME not in line]
                return rings, NodeFacts(timeout_ms, name or None, lock_id, tuple(nodes), tuple(clients))
    raise RingSourceError(f"{_UNREAD}this is not what the eval expression prints, but {outline(text)}")


def eval_of_exchange(vhost: str, exchange: str) -> str:
    """Return an Erlang expression that prints a ring as `eval_expression` does, and the exchange's arguments.

    Mirrors the record ``exchange`` of rabbitmq-server v3.10.0 to v4.3.6, rabbit.hrl, whose seventh element are the arguments.
    """
    name = f"rabbit_misc:r({_binary(vhost)}, exchange, {_binary(exchange)})"
    ring = eval_expression(vhost, exchange).removesuffix(".")
    return (
        f"case rabbit_exchange:lookup({name}) of {{ok, X}} -> "
        "Digits = fun(Text) -> binary:decode_unsigned(<<1, Text/binary>>) end, {exchange, "
        '[{Digits(Name), Digits(Value)} || {<<"hash-", _/binary>> = Name, longstr, Value} <- element(7, X)], '
        f"{ring}}}; Missing -> Missing end."
    )


def read_eval_of_exchange(text: str, vhost: str, exchange: str) -> tuple[ReadBuckets, dict[str, str]]:
    """Read the ring, and the arguments that determine the hashed value, from the output of `eval_of_exchange`.

    Raises:
        NotFoundError: the x-consistent-hash exchange does not exist.
        RingSourceError: the text is not such output, or is of another exchange.
    """
    match = _EXCHANGE.fullmatch("".join(text.split()))
    if match is None:
        return read_eval(text, vhost, exchange), {}
    pairs = re.findall(rf"\{{({_NAME}),({_NAME})\}}", match[1])
    return read_eval(match[2], vhost, exchange), {_name(name): _name(value) for name, value in pairs}


def read_eval(text: str, vhost: str, exchange: str) -> ReadBuckets:
    """Read the ring from the output of the eval expression.

    Raises:
        NotFoundError: the x-consistent-hash exchange does not exist.
        RingSourceError: the text is not such output, or is the ring of another exchange.
    """
    if _NOT_FOUND.fullmatch(text):
        _fail_not_found(vhost, exchange)
    ring = _TERM.fullmatch("".join(text.split()))
    if ring is None:
        raise RingSourceError(f"{_UNREAD}this is not what the eval expression prints, but {outline(text)}")
    buckets: dict[int, Destination] = {}
    for bucket, kind, number in re.findall(_ENTRY, ring["entries"]):
        name = _name(number)
        buckets[int(bucket)] = name if kind == "queue" else ExchangeRef(name)
    if ring["next"] is None:
        return _in_order(buckets)
    _check_it_is_of(vhost, exchange, _name(ring["vhost"]), _name(ring["exchange"]))
    return _in_order(buckets, int(ring["next"]))


def read_saved(text: str, vhost: str, exchange: str) -> ReadBuckets:
    """Read the ring from output of any of the three forms.

    Raises:
        NotFoundError: the x-consistent-hash exchange does not exist.
        RingSourceError: the text is not such output, or is the ring of another exchange.
    """
    try:
        document = json.loads(text.encode())
    except (ValueError, RecursionError):
        pass
    else:
        return _read_json(document, text, vhost, exchange)
    # Not splitlines(): names may contain other line ends.
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    if lines[-1:] == [_NO_RING]:
        _fail_not_found(vhost, exchange)
    if lines and (lines[0].startswith(_BANNER) or _LINE.fullmatch(lines[0])):
        return _read_lines(lines, vhost, exchange)
    return read_eval(text, vhost, exchange)


def _read_json(document: Any, text: str, vhost: str, exchange: str) -> ReadBuckets:
    ring = document if isinstance(document, dict) else {}
    buckets = ring.get("buckets")
    if buckets is None and ring.get("message") == _NO_RING:
        _fail_not_found(vhost, exchange)
    if not isinstance(buckets, dict) or not all(
        re.fullmatch(r"[0-9]{1,7}", number) and isinstance(queue, str) for number, queue in buckets.items()
    ):
        raise RingSourceError(
            f"{_UNREAD}this is not what consistent_hash_exchange_ring_state prints as JSON, but {outline(text)}"
        )
    _check_it_is_of(vhost, exchange, _vhost_in(ring), ring.get("exchange"))
    return _in_order({int(number): queue for number, queue in buckets.items()})


def _vhost_in(ring: dict[str, Any]) -> str | None:
    """Return the vhost from the message ``... for exchange 'x' in vhost '/'``: no field contains it."""
    start = f"Consistent hashing ring state for exchange '{ring.get('exchange')}' in vhost '"
    message = ring.get("message")
    return message[len(start) : -1] if isinstance(message, str) and message.startswith(start) else None


def _read_lines(lines: list[str], vhost: str, exchange: str) -> ReadBuckets:
    if lines[0].startswith(_BANNER):
        banner = lines.pop(0)
        if banner != f"{_BANNER}{exchange} in virtual host '{vhost}'...":
            raise RingSourceError(
                f"this is the ring of another exchange than {exchange!r} in vhost {vhost!r}"
            )
    buckets: dict[int, Destination] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise RingSourceError(
                f"{_UNREAD}this is not a line of consistent_hash_exchange_ring_state, but {outline(line)}"
            )
        buckets[int(match[1])] = match[2]
    return _in_order(buckets)


def _check_it_is_of(vhost: str, exchange: str, named_vhost: str | None, named: str | None) -> None:
    if named not in {None, exchange} or named_vhost not in {None, vhost}:
        where = "" if named_vhost is None else f" in vhost {named_vhost!r}"
        raise RingSourceError(
            f"this is the ring of exchange {named!r}{where}, not of {exchange!r} in vhost {vhost!r}: pass the right one"
        )


def _name(number: str) -> str:
    raw = int(number).to_bytes((int(number).bit_length() + 7) // 8)[1:]  # without the leading 1
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    raise RingSourceError(f"{_UNREAD}a name is not UTF-8, {plural(len(raw), 'byte')}: rename it")


def _in_order(buckets: dict[int, Any], next_bucket: int | None = None) -> ReadBuckets:
    size = max(buckets, default=-1) + 1
    if next_bucket is not None and next_bucket < size:
        # A release that counts wrong: a bind would overwrite buckets, which HashRing cannot express.
        next_bucket = None
    return ReadBuckets((buckets.get(bucket) for bucket in range(next_bucket or size)), next_bucket)


def _fail_not_found(vhost: str, exchange: str) -> NoReturn:
    raise NotFoundError(
        f"there is no x-consistent-hash exchange {exchange!r} in vhost {vhost!r}: check its name, type and vhost",
        exchange=exchange,
    )


_Reading = TypeVar("_Reading")
#: Names of exchanges are part of the command line, whose length is limited.
_RINGS_AT_ONCE = 100


class RingSource(Protocol):
    """A source of the broker's actual ring."""

    def read(self, vhost: str, exchange: str) -> tuple[Destination | None, ...]:
        """Return the destination of bucket 0, 1 and so on; None at a hole. :class:`ReadBuckets` also contain the number of the next bucket.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: the x-consistent-hash exchange does not exist.
            RingSourceError: the ring could not be read.
        """


def ring_by(source: RingSource, vhost: str, exchange: str, release: Release) -> HashRing:
    """Return the ring that a source reads, under the rules of a release.

    Raises:
        NotFoundError: the x-consistent-hash exchange does not exist.
        RingSourceError: the ring could not be read.
    """
    return _ring_of(source.read(vhost, exchange), release)


def rings_by(
    source: RingSource, vhost: str, exchanges: Sequence[str], release: Release
) -> dict[str, HashRing]:
    """Return the rings of several exchanges, by name. Exchanges that do not exist or have another type are left out.

    Raises:
        RingSourceError: a ring could not be read.
    """
    if isinstance(source, DiagnosticsRing):
        read = source.read_all(vhost, exchanges)
        return {exchange: _ring_of(buckets, release) for exchange, buckets in read.items()}
    rings = {}
    for exchange in exchanges:
        with contextlib.suppress(NotFoundError):
            rings[exchange] = ring_by(source, vhost, exchange, release)
    return rings


def _ring_of(buckets: tuple[Destination | None, ...], release: Release) -> HashRing:
    next_bucket = buckets.next_bucket if isinstance(buckets, ReadBuckets) else None
    return HashRing.from_buckets(buckets, release, next_bucket=next_bucket)


class DiagnosticsRing:
    """A ring source that runs the broker's command line tool, ``rabbitmqctl eval``.

    Args:
        prefix: the command prefix for the tool: ``docker exec NAME``, ``kubectl exec POD --``, ``ssh HOST``, ``sudo -u rabbitmq``; empty on
            the broker's own machine. Text is split as in a shell; no shell runs.
        timeout_s: the time limit of the command, in seconds.

    Raises:
        InputError: the prefix is a text that a shell could not split.

    Attributes:
        command: the command in words, for errors.
        consumer_timeout_ms, cluster_name, lock_id, nodes, connections: of the broker, as `read_all` found them: see `NodeFacts`; None before.
    """

    def __init__(self, prefix: str | Sequence[str] = (), timeout_s: float = 30.0) -> None:
        self._prefix = _words(prefix)
        self._timeout_s = timeout_s
        self.command = self._quote_command("rabbitmqctl")
        self.consumer_timeout_ms, self.cluster_name, self.lock_id, self.nodes, self.connections = NodeFacts()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_secrets(shlex.join(self._prefix))!r})"

    def read(self, vhost: str, exchange: str) -> ReadBuckets:
        """Return the current ring.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: the x-consistent-hash exchange does not exist.
            RingSourceError: the command cannot be run or fails, or its output is not a ring.
        """
        return self._evaluate(
            eval_expression(vhost, exchange), lambda output: read_eval(output, vhost, exchange)
        )

    def read_exchange(self, vhost: str, exchange: str) -> tuple[ReadBuckets, dict[str, str]]:
        """Return the current ring, and the arguments of the exchange that determine the hashed value.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: the x-consistent-hash exchange does not exist.
            RingSourceError: the command cannot be run or fails, or its output is not a ring.
        """
        return self._evaluate(
            eval_of_exchange(vhost, exchange), lambda output: read_eval_of_exchange(output, vhost, exchange)
        )

    def read_all(self, vhost: str, exchanges: Sequence[str]) -> dict[str, ReadBuckets]:
        """Return the rings of several exchanges, by name. Exchanges that do not exist or have another type are left out.

        One command reads many rings, because its start takes longer than the reading.

        Args:
            vhost: the vhost of the exchanges.
            exchanges: their names.

        Raises:
            RingSourceError: a command cannot be run or fails, or its output is not a list of rings.
        """
        rings: dict[str, ReadBuckets] = {}
        for start in range(0, max(len(exchanges), 1), _RINGS_AT_ONCE):
            names = exchanges[start : start + _RINGS_AT_ONCE]
            read, facts = self._evaluate(
                eval_of_all(vhost, names), partial(read_eval_of_all, vhost=vhost, exchanges=names)
            )
            self.consumer_timeout_ms, self.cluster_name, self.lock_id, self.nodes, self.connections = facts
            rings |= read
        return rings

    def _evaluate(self, expression: str, read: Callable[[str], _Reading]) -> _Reading:
        """Return the result of an Erlang expression.

        Raises:
            RingSourceError: the command cannot be run or fails, or its output cannot be read.
        """
        result = self._run("rabbitmqctl", "-q", "eval", expression)
        if result.returncode != 0:
            self._fail(result)
        try:
            return read(result.stdout)
        except RingSourceError as error:
            problem = str(error)
        raise RingSourceError(f"{self.command}: {problem}: {self._remedy}")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        if self._prefix and Path(self._prefix[0]).name == "ssh":
            command = tuple(map(shlex.quote, command))  # ssh passes a line to the remote shell
        try:
            done = run_program([*self._prefix, *command], self._timeout_s, _LONGEST_OUTPUT)
            printed = (each.decode(errors="surrogateescape") for each in (done.stdout, done.stderr))
            return subprocess.CompletedProcess(done.args, done.returncode, *printed)
        except OutputTooLongError:
            problem = f"printed more than {_LONGEST_OUTPUT:,} bytes: {self._remedy}"
        except subprocess.TimeoutExpired:
            problem = f"gave no answer within {self._timeout_s:g} s: check that the broker runs"
        except (OSError, ValueError) as cause:
            why = cause.strerror if isinstance(cause, OSError) else error_text(cause)
            problem = f"could not be started ({why}): {self._remedy}"
        raise RingSourceError(f"{_UNREAD}{self._quote_command(command[0])} {problem}")

    def _fail(self, result: subprocess.CompletedProcess[str]) -> NoReturn:
        output = result.stderr.strip() or result.stdout.strip()
        words = " ".join(output.encode(errors="replace").decode().split())
        remedy = self._remedy
        if "undef" in words and "ring_state" in words:
            remedy = "run rabbitmq-plugins enable rabbitmq_consistent_hash_exchange on it"
        raise RingSourceError(
            f"{_UNREAD}{self.command} ended with {result.returncode} ({without_secrets(words):.200}): {remedy}"
        )

    def _quote_command(self, tool: str) -> str:
        return repr(without_secrets(shlex.join([*self._prefix, tool])))

    @property
    def _remedy(self) -> str:
        return (
            f"check the command prefix {without_secrets(shlex.join(self._prefix))!r}"
            if self._prefix
            else "pass a command prefix that reaches the broker, such as 'docker exec NAME'"
        )


def _words(prefix: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(prefix) if isinstance(prefix, str) else prefix)
    except ValueError as cause:
        raise InputError(
            f"the command prefix cannot be split into words ({str(cause).lower()}): close each quote"
        ) from None


class SavedRing:
    """A ring source of saved output: of the eval expression, or of the diagnostics command as text or JSON.

    The diagnostics command prints names by the locale of its process, so decode its output by that locale. Output of the eval expression is
    ASCII. If the output names the exchange or the vhost, any other one is refused. It does not name the cluster: the caller vouches for it.

    Args:
        text: the saved output.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], encoding: str = "utf-8") -> SavedRing:
        """Read the output from a file.

        Args:
            path: the file.
            encoding: the encoding of the file.

        Raises:
            RingSourceError: the file cannot be read.
        """
        try:
            return cls(Path(path).read_text(encoding=encoding))
        except (OSError, ValueError) as cause:
            raise RingSourceError(
                f"the saved ring {os.fspath(path)!r} cannot be read ({cause}): check its name and its encoding"
            ) from None

    def read(self, vhost: str, exchange: str) -> ReadBuckets:
        """Return the saved ring.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: the x-consistent-hash exchange does not exist.
            RingSourceError: the text is not such output, or is the ring of another exchange.
        """
        return read_saved(self._text, vhost, exchange)
