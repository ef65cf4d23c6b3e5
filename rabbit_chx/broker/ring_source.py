"""Ways to read the true ring of an exchange, bucket by bucket.

AMQP and the management API do not show it. The broker's own tools do. ``rabbitmqctl eval`` tells everything,
on every release since 3.8.5. ``rabbitmq-diagnostics consistent_hash_exchange_ring_state`` tells less: it
crashes where an exchange is a destination, it prints names by the broker's locale, and it omits the number of
the next bucket. So only its saved output is read.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from rabbit_chx.broker.ring_output import (
    Buckets,
    eval_expression,
    eval_of_all,
    eval_of_exchange,
    read_eval,
    read_eval_of_all,
    read_eval_of_exchange,
    read_saved,
)
from rabbit_chx.errors import InputError, NotFoundError, RingSourceError
from rabbit_chx.routing import Destination, HashRing, Release

_Reading = TypeVar("_Reading")
#: Names of exchanges are a part of the command line, whose length is limited.
_RINGS_AT_ONCE = 100


class RingSource(Protocol):
    """A way to read the true ring."""

    def read(self, vhost: str, exchange: str) -> tuple[Destination | None, ...]:
        """Return the destination of bucket 0, 1 and so on; None at a hole.

        :class:`Buckets` also tell the number of the next bucket.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the ring could not be read.
        """


def ring_by(source: RingSource, vhost: str, exchange: str, release: Release) -> HashRing:
    """Return the ring that a source reads, under the rules of a release.

    Args:
        source: how to read the ring.
        vhost: the exchange's vhost.
        exchange: the exchange's name.
        release: the release whose rules apply.

    Raises:
        NotFoundError: there is no x-consistent-hash exchange of that name.
        RingSourceError: the ring could not be read.
    """
    return _ring_of(source.read(vhost, exchange), release)


def rings_by(
    source: RingSource, vhost: str, exchanges: Sequence[str], release: Release
) -> dict[str, HashRing]:
    """Return the rings of several exchanges, by name. One that is not there, or of another type, is left out.

    Args:
        source: how to read the rings.
        vhost: the vhost of the exchanges.
        exchanges: their names.
        release: the release whose rules apply.

    Raises:
        RingSourceError: a ring could not be read.
    """
    if isinstance(source, DiagnosticsRing) and len(exchanges) > 1:
        read = source.read_all(vhost, exchanges)
        return {exchange: _ring_of(buckets, release) for exchange, buckets in read.items()}
    rings = {}
    for exchange in exchanges:
        with contextlib.suppress(NotFoundError):
            rings[exchange] = ring_by(source, vhost, exchange, release)
    return rings


def _ring_of(buckets: tuple[Destination | None, ...], release: Release) -> HashRing:
    next_bucket = buckets.next_bucket if isinstance(buckets, Buckets) else None
    return HashRing.from_buckets(buckets, release, next_bucket=next_bucket)


class DiagnosticsRing:
    """A ring source that asks the broker's command line tool, ``rabbitmqctl eval``.

    Args:
        prefix: the command prefix that reaches the tool: ``docker exec NAME``, ``kubectl exec POD --``, ``ssh
            HOST``, ``sudo -u rabbitmq``; empty on the broker's own machine. Text is split as a shell does; no
            shell runs.
        timeout_s: how many seconds the command may take.

    Raises:
        InputError: the prefix is a text that a shell could not split.
    """

    def __init__(self, prefix: str | Sequence[str] = (), timeout_s: float = 30.0) -> None:
        self._prefix = _words(prefix)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shlex.join(self._prefix)!r})"

    def read(self, vhost: str, exchange: str) -> Buckets:
        """Return the ring as it is now.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the command cannot be run or fails, or its output is not a ring.
        """
        return self._evaluated(
            eval_expression(vhost, exchange), lambda output: read_eval(output, vhost, exchange)
        )

    def read_exchange(self, vhost: str, exchange: str) -> tuple[Buckets, dict[str, str]]:
        """Return the ring as it is now, and the arguments of the exchange that say what it hashes.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the command cannot be run or fails, or its output is not a ring.
        """
        return self._evaluated(
            eval_of_exchange(vhost, exchange), lambda output: read_eval_of_exchange(output, vhost, exchange)
        )

    def read_all(self, vhost: str, exchanges: Sequence[str]) -> dict[str, Buckets]:
        """Return the rings of several exchanges, by name. An exchange that is not there, or of another type, is left out.

        One command reads many rings, since its start takes longer than the reading.

        Args:
            vhost: the vhost of the exchanges.
            exchanges: their names.

        Raises:
            RingSourceError: a command cannot be run or fails, or its output is no list of rings.
        """
        rings: dict[str, Buckets] = {}
        for start in range(0, len(exchanges), _RINGS_AT_ONCE):
            names = exchanges[start : start + _RINGS_AT_ONCE]
            rings |= self._evaluated(
                eval_of_all(vhost, names), partial(read_eval_of_all, vhost=vhost, exchanges=names)
            )
        return rings

    def _evaluated(self, expression: str, read: Callable[[str], _Reading]) -> _Reading:
        """Return what the broker's answer to an Erlang expression says.

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
        raise RingSourceError(f"{self._named('rabbitmqctl')}: {problem}: {self._remedy}")

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
            problem = f"gave no answer within {self._timeout_s:g} s: check that the broker runs"
        except (OSError, ValueError) as cause:
            problem = f"could not be started ({cause}): {self._remedy}"
        raise RingSourceError(f"the ring was not read: {self._named(command[0])} {problem}")

    def _fail(self, result: subprocess.CompletedProcess[str]) -> NoReturn:
        output = result.stderr.strip() or result.stdout.strip()
        words = " ".join(output.encode(errors="replace").decode().split())
        remedy = self._remedy
        if "undef" in words and "ring_state" in words:
            remedy = "run rabbitmq-plugins enable rabbitmq_consistent_hash_exchange on it; ring_state is there since 3.8.5"
        raise RingSourceError(
            f"the ring was not read: {self._named('rabbitmqctl')} ended with {result.returncode} ({words:.200}): {remedy}"
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
    """A ring source of saved output: of the eval expression, or of the diagnostics command as text or JSON.

    The diagnostics command prints names by the locale of its process, so decode its output by that locale.
    Output of the eval expression is ASCII. Where the output names the exchange or the vhost, any other one is
    refused.

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

    def read(self, vhost: str, exchange: str) -> Buckets:
        """Return the ring as it was saved.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the text is not such output, or is the ring of another exchange.
        """
        return read_saved(self._text, vhost, exchange)
