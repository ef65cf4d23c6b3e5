"""Message ids that are computed from messages: a message that is published again has the same id.

The rule of both publishers and of Spark: an id is 32 hexadecimal digits of the SHA-256 over the SHA-256 of the write's name, the fields of the
message, each after its length in 4 bytes (-1 for null), and the body. Among equal messages of a write each except the first has its number
appended. The key is the first field. Other fields are sorted by name, and their names belong to that of the write.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from rabbit_chx.errors import InputError
from rabbit_chx.publishing.batches import Column, batches
from rabbit_chx.publishing.encoder import as_bytes

#: The bytes of the hash in an id.
ID_BYTES = 16


def write_hash(write: str) -> bytes:
    """Return the hash of the name of a write, with which the hash of each of its messages begins."""
    return hashlib.sha256(write.encode("utf-8", "surrogatepass")).digest()


def row_hash(write: bytes, row: bytes) -> bytes:
    """Return the hash of a message: of the `write_hash`, the fields after their lengths, and the body."""
    return hashlib.sha256(write + row).digest()[:ID_BYTES]


def stable_ids(write: str, keys: Column, bodies: Column) -> list[str]:
    """Return a message id for each message. The same messages of the same write always have the same ids.

    An id is 32 hexadecimal digits of the SHA-256 over the write, the key and the body. Among equal messages each except the first has its
    number appended, so that ids are unique. The order of the messages matters only for equal messages. Ids from your own data, such as an order
    number, are better: they do not depend on the publisher.

    Args:
        write: the name of the write, such as a file, a day or a batch: the same name for a repeated write, a different one for everything
            else. Equal messages of two calls with one name have one id, and a consumer drops the second.
        keys: the routing keys, as for `publish_many`, except iterators.
        bodies: one body for each key.

    Returns:
        One id for each message, for ``properties={"message_id": ...}``.

    Raises:
        InputError: the name is empty, the columns differ in length, or one is an iterator.
        RowError: a key or a body is not text.

    Example::

        ids = stable_ids("import of 2026-11-21", keys, bodies)
        publisher.publish_many(keys, bodies, properties={"message_id": ids})
    """
    if not isinstance(write, str) or not write:
        raise InputError(
            f"write is {write!r:.60}: pass a name of what is written, such as a file, a day or a batch"
        )
    for name, column in (("keys", keys), ("bodies", bodies)):
        if iter(column) is column:
            raise InputError(f"{name} can be read only once, so nothing would be left to send: pass a list")
    start = write_hash(write)
    counts: Counter[bytes] = Counter()
    ids: list[str] = []
    for batch_keys, batch_bodies in batches({"keys": keys, "bodies": bodies}):
        rows = zip(
            as_bytes(batch_keys, "routing key", len(ids)),
            as_bytes(batch_bodies, "body", len(ids)),
            strict=True,
        )
        for key, body in rows:
            row = row_hash(start, len(key).to_bytes(4, "big") + key + body)
            number = counts[row]
            counts[row] = number + 1
            ids.append(f"{row.hex()}-{number}" if number else row.hex())
    return ids
