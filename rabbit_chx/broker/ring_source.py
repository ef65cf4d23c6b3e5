"""Ways to read the true ring of an exchange, bucket by bucket.

AMQP and the management API do not show it. The broker's own tools do: ``rabbitmq-diagnostics
consistent_hash_exchange_ring_state`` (since 3.8.5), which crashes where an exchange is a destination or where the
exchange's name is not ASCII, and ``rabbitmqctl eval``, which can say everything.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from rabbit_chx.errors import InputError, NotFoundError, RingSourceError
from rabbit_chx.routing import ExchangeRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import Destination

__all__ = ["Buckets", "DiagnosticsRing", "RingSource", "SavedRing", "eval_expression"]

Buckets: TypeAlias = "tuple[Destination | None, ...]"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./:%~+ -]*", re.ASCII)
_ENTRY = r"\{([0-9]{1,7}),(queue|exchange),([0-9]{1,620})\}"
_RING_TERM = re.compile(rf"\{{ring,\[(?:{_ENTRY}(?:,{_ENTRY})*)?\]\}}")
_NO_RING = "Exchange does not exist or is of a different type"


class RingSource(Protocol):
    """A way to read the true ring."""

    def read(self, vhost: str, exchange: str) -> Buckets:
        """The destination of bucket 0, 1 and so on; None at a hole.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: it could not be read.
        """


class DiagnosticsRing:
    """Asks the broker's command line tools.

    Args:
        prefix: what stands before the tool: nothing on the broker's own machine, ``docker exec NAME``,
            ``kubectl exec POD --``, ``ssh HOST``, ``sudo -u rabbitmq``. Text is split as a shell does; no shell runs.
        timeout_s: seconds that each command may take.
    """

    def __init__(self, prefix: str | Sequence[str] = (), timeout_s: float = 30.0) -> None:
        self._prefix = _words(prefix)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shlex.join(self._prefix)!r})"

    def read(self, vhost: str, exchange: str) -> Buckets:
        """The ring as it is now; see :meth:`RingSource.read`."""
        buckets = self._by_diagnostics(vhost, exchange)
        return self._by_eval(vhost, exchange) if buckets is None else buckets

    def _by_diagnostics(self, vhost: str, exchange: str) -> Buckets | None:
        """None where this command cannot answer, and eval can."""
        for name in (vhost, exchange):
            if name.startswith("-") or not _PLAIN_NAME.fullmatch(name):
                return None
        done = self._run(
            "rabbitmq-diagnostics",
            *("-q", "consistent_hash_exchange_ring_state", exchange, "--vhost", vhost, "--formatter", "json"),
        )
        if _NO_RING in done.stdout + done.stderr:
            _fail_not_found(vhost, exchange)
        if "FunctionClauseError" in done.stdout + done.stderr:
            return None
        if done.returncode != 0:
            self._fail(done)
        if _parsed(done.stdout) is None:
            return None  # in a C locale the tool writes é as the byte E9 and ☃ as \x{2603}: no JSON, no UTF-8
        return _from_json(done.stdout, exchange)

    def _by_eval(self, vhost: str, exchange: str) -> Buckets:
        done = self._run("rabbitmqctl", "-q", "eval", eval_expression(vhost, exchange))
        if done.returncode != 0:
            self._fail(done)
        if "not_found" in done.stdout:
            _fail_not_found(vhost, exchange)
        return _from_term(done.stdout)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        if self._prefix and Path(self._prefix[0]).name == "ssh":
            command = tuple(map(shlex.quote, command))  # ssh hands a line to a shell over there
        try:
            return subprocess.run(  # noqa: S603 - the prefix is the user's own, and no shell runs
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = f"gave no answer within {self._timeout_s:g} s: look whether the broker runs"
        except (OSError, ValueError) as cause:
            problem = f"could not be started ({cause}): {self._remedy}"
        raise RingSourceError(f"the ring was not read: {self._named(command[0])} {problem}")

    def _fail(self, done: subprocess.CompletedProcess[str]) -> NoReturn:
        output = done.stderr.strip() or done.stdout.strip()
        said = " ".join(output.encode(errors="replace").decode().split())
        tool = next((part for part in done.args if part.startswith("rabbitmq")), done.args[0])
        raise RingSourceError(
            f"the ring was not read: {self._named(tool)} ended with {done.returncode} ({said:.200}): {self._remedy}"
        )

    def _named(self, tool: str) -> str:
        return repr(shlex.join([*self._prefix, tool]))

    @property
    def _remedy(self) -> str:
        return (
            f"check the command prefix {shlex.join(self._prefix)!r}"
            if self._prefix
            else "give a command prefix that reaches the broker, such as 'docker exec NAME'"
        )


def _words(prefix: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(prefix) if isinstance(prefix, str) else prefix)
    except ValueError as cause:
        raise InputError(f"the command prefix {prefix!r} cannot be split into words: {cause}") from None


class SavedRing:
    """Output that was saved before: of the diagnostics command with ``--formatter json``, or of the eval expression.

    Args:
        text: the output.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> SavedRing:
        """Read the output from a file.

        Raises:
            RingSourceError: the file cannot be read.
        """
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as cause:
            raise RingSourceError(
                f"the saved ring {os.fspath(path)!r} cannot be read ({cause}): check its name"
            ) from None

    def read(self, vhost: str, exchange: str) -> Buckets:
        """The ring as it was saved; see :meth:`RingSource.read`. The vhost is not in such output."""
        if _NO_RING in self._text or re.search(r"\{\s*error\s*,\s*not_found", self._text):
            _fail_not_found(vhost, exchange)
        if self._text.lstrip().startswith("{ring"):
            return _from_term(self._text)
        return _from_json(self._text, exchange)


def eval_expression(vhost: str, exchange: str) -> str:
    """An Erlang expression for ``rabbitmqctl eval`` that prints the ring, with kinds, in characters that cannot break.

    Mirrors rabbitmq-server v4.3.6, rabbit_exchange_type_consistent_hash.erl, ``ring_state/2`` and the record
    ``chx_hash_ring``, as they are since 3.8.5. Names go in as lists of bytes and come out as whole numbers (with a 1
    before the first byte), so that no quotes, line breaks or alphabets are in the way.
    """
    arguments = ", ".join(f"<<{','.join(map(str, name.encode()))}>>" for name in (vhost, exchange))
    return (
        f"case rabbit_exchange_type_consistent_hash:ring_state({arguments}) of "
        "{ok, Ring} -> {ring, [{Bucket, element(3, To), binary:decode_unsigned(<<1, (element(4, To))/binary>>)} "
        "|| {Bucket, To} <- lists:sort(maps:to_list(element(3, Ring)))]}; "
        "Other -> Other end."
    )


def _from_term(text: str) -> Buckets:
    term = "".join(text.split())
    if not _RING_TERM.fullmatch(term):
        raise RingSourceError(
            f"the ring was not read: this is not what the eval expression prints: {text!r:.200}"
        )
    found: dict[int, Destination] = {}
    for bucket, kind, number in re.findall(_ENTRY, term):
        name = _name(int(number))
        found[int(bucket)] = name if kind == "queue" else ExchangeRef(name)
    return _in_order(found)


def _name(number: int) -> str:
    raw = number.to_bytes((number.bit_length() + 7) // 8)[1:]  # without the leading 1
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    raise RingSourceError(f"the ring was not read: the destination {raw!r} is not UTF-8: rename it")


def _from_json(text: str, exchange: str) -> Buckets:
    buckets, named = _ring_in(_parsed(text))
    if buckets is None:
        raise RingSourceError(
            "the ring was not read: this is not what consistent_hash_exchange_ring_state prints with "
            f"--formatter json: {text!r:.200}"
        )
    if named not in {None, exchange}:
        raise RingSourceError(
            f"this is the ring of exchange {named!r}, not of {exchange!r}: give the right one"
        )
    return _in_order(buckets)


def _parsed(text: str) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return json.loads(text.encode())
    except ValueError:
        return None


def _ring_in(document: Any) -> tuple[dict[int, str] | None, str | None]:  # noqa: ANN401
    if not isinstance(document, dict) or not isinstance(document.get("buckets"), dict):
        return None, None
    buckets = document["buckets"]
    if not all(re.fullmatch(r"[0-9]{1,7}", n) and isinstance(q, str) for n, q in buckets.items()):
        return None, None
    return {int(number): queue for number, queue in buckets.items()}, document.get("exchange")


def _in_order(found: dict[int, Any]) -> Buckets:
    return tuple(found.get(bucket) for bucket in range(max(found, default=-1) + 1))


def _fail_not_found(vhost: str, exchange: str) -> NoReturn:
    raise NotFoundError(
        f"there is no x-consistent-hash exchange {exchange!r} in vhost {vhost!r}: check its name, type and vhost",
        exchange=exchange,
    )
