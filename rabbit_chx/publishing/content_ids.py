"""Message ids made of what a row holds, so that a row that is published again has the id that it had."""

from __future__ import annotations

import hashlib
from collections import Counter

from rabbit_chx.errors import InputError
from rabbit_chx.publishing.batches import Column, batches
from rabbit_chx.publishing.rows import as_bytes

_BYTES = 16  # of the hash


def stable_ids(write: str, keys: Column, bodies: Column) -> list[str]:
    """Return a message id for each row; the same rows of the same write have the same ids whenever they are published.

    An id is 32 hexadecimal digits of the SHA-256 over the write, the key and the body. Among equal rows each but the first has
    its number appended, so that no two rows share an id. The order of the rows does not matter, but for equal ones. Ids from
    your own data, such as an order number, are better: they hold for whoever publishes the row.

    Args:
        write: the name of what is written, such as a file, a day or a batch: the same when it is written again, and another
            one for everything else. Equal rows of two calls with one name have one id, and a consumer drops the second.
        keys: the routing keys, as for `publish_many`, but nothing that can be read only once.
        bodies: one body for each key.

    Returns:
        One id for each row, for ``properties={"message_id": ...}``.

    Raises:
        InputError: the name is empty, the columns differ in length, or one can be read only once.
        RowError: a key or a body is no text.

    Example::

        ids = stable_ids("import of 2026-11-21", keys, bodies)
        publisher.publish_many(keys, bodies, properties={"message_id": ids})
    """
    if not isinstance(write, str) or not write:
        raise InputError(
            f"write is {write!r:.60}: give a name of what is written, such as a file, a day or a batch"
        )
    for name, column in (("keys", keys), ("bodies", bodies)):
        if iter(column) is column:
            raise InputError(
                f"{name} can be read only once, so nothing would be left to publish: give a list"
            )
    start = hashlib.sha256(write.encode("utf-8", "surrogatepass")).digest()
    counts: Counter[bytes] = Counter()
    ids: list[str] = []
    for batch_keys, batch_bodies in batches({"keys": keys, "bodies": bodies}):
        rows = zip(
            as_bytes(batch_keys, "routing key", len(ids)),
            as_bytes(batch_bodies, "body", len(ids)),
            strict=True,
        )
        for key, body in rows:
            row = hashlib.sha256(start + len(key).to_bytes(4, "big") + key + body).digest()[:_BYTES]
            number = counts[row]
            counts[row] = number + 1
            ids.append(f"{row.hex()}-{number}" if number else row.hex())
    return ids
