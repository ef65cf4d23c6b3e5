"""The file of observed keys that a `ConsumerGroup` writes, and the comparison of these keys with its ring."""

from __future__ import annotations

import csv
import io
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.observations import Contradiction
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.observations import Observation

_log = logging.getLogger(__name__)

_HEADER = "key,queue,time,exchange\n"
#: The number of keys that are written: enough for rings of about 10,000 buckets.
MOST_KEYS = 100_000
#: A message with one of these headers may have come to its queue in another way than by its routing key.
_REROUTED = ("x-death", "x-first-death-queue")
#: No line of the file has these in a key: line breaks, and halves of surrogate pairs.
_UNFIT = re.compile("[\n\r\ud800-\udfff]")


class Observer:
    """Writes each key with its queue the first time that a message with it is handled, and again if the queue of the key changes.

    The file is CSV. It is never overwritten, and has at most `MOST_KEYS` keys. Each row is written at once, so the end of the process loses
    none. A row that was cut off, as by a full disk, is removed when the file is opened again. If the file cannot be written any more, a
    warning is logged and the group continues.

    Args:
        path: the file, one for each member.
        header: the header that the exchange hashes; None for the routing key.
        key_map: the ring or slot table whose queues are consumed, which is compared with the keys; None for none.

    Attributes:
        contradiction: the first key that came from another queue than that of the key map; None if there was none.
    """

    def __init__(self, path: str | os.PathLike[str], header: str | None, key_map: KeyMap | None) -> None:
        self._hashing = Hashing(header, client="aio-pika")
        self._path, self._header = Path(path), header
        # Where no order matters, the bindings determine the queues.
        self._key_map = key_map if key_map is not None and key_map.traits.has_order else None
        self.contradiction: Contradiction | None = None
        self._queues: dict[str, str] = {}  # by key
        self._rows = 0
        self._file: int | None = None

    def open(self) -> None:
        """Open the file, and read the keys that it has.

        Raises:
            InputError: the file is of another kind, or cannot be opened.
        """
        self._queues, self._rows = {}, 0
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            with self._path.open("rb") as existing:
                data = existing.read()
            if not _HEADER.encode().startswith(data[: len(_HEADER)]):
                raise InputError(
                    f"observe is {str(self._path)!r}, a file that no group wrote: pass the path of a new file"
                )
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                os.ftruncate(self._file, len(whole))
            if not whole:
                os.write(self._file, _HEADER.encode())
            for row in csv.reader(io.StringIO(whole.decode(errors="replace")[len(_HEADER) :], newline="")):
                if len(row) > 1:
                    self._queues[row[0]] = row[1]
                    self._rows += 1
        except OSError as error:
            raise InputError(
                f"observe is {str(self._path)!r}, which cannot be written: {error.strerror}; pass another file"
            ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def observe(self, message: GroupMessage) -> None:
        """Write the key of a message that was handled, if it is new."""
        key = self._key_of(message)
        if key is None or self._file is None or self._queues.get(key) == message.queue:
            return
        is_full = len(self._queues) >= MOST_KEYS and key not in self._queues
        if is_full or self._rows >= 2 * MOST_KEYS:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._queues[key] = message.queue
        self._rows += 1
        self._compare(Observation(key, message.queue, time), message.exchange)
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow([key, message.queue, time, message.exchange])
        try:
            os.write(self._file, row.getvalue().encode())
        except OSError as error:
            _log.warning("%s cannot be written, no more keys are observed: %s", self._path, error)
            self.close()

    def _key_of(self, message: GroupMessage) -> str | None:
        """Return the hashed value of a message, None if it is no text or the message was not routed by it."""
        if not message.exchange or any(name in message.headers for name in _REROUTED):
            return None
        key = message.routing_key if self._header is None else message.headers.get(self._header)
        is_line = isinstance(key, str) and not _UNFIT.search(key)
        return key if is_line else None

    def _compare(self, observation: Observation, exchange: str) -> None:
        if self._key_map is None or self.contradiction is not None:
            return
        predicted = self._hashing.exchange(self._key_map).route(**self._hashing.message(observation.key))
        if predicted == observation.queue or isinstance(predicted, ExchangeRef):
            return
        self.contradiction = Contradiction(observation, predicted)
        _log.warning(
            "a message of the exchange %r contradicts the ring: %s. Which queue a key reaches is not determined; if the ring changed after "
            "the message was published, pass the group the new ring",
            exchange,
            self.contradiction,
            extra={"queue": observation.queue},
        )
