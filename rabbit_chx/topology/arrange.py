"""Other orders of rings, and who has which slot, written into the text of a topology file. The rest stays as it is, to the byte."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rabbit_chx.topology.fields import FileEntry, read_document
from rabbit_chx.topology.objects import FILE, RingMember
from rabbit_chx.topology.toml_file import member_texts, members_text

#: The key of a ring or of the members that share slots, and what may hide brackets or makes up an array: strings, comments and the brackets themselves.
_TOKEN = re.compile(
    r"""(?P<key>(?<![\w-])(?:(?:ring|members)|"(?:ring|members)"|'(?:ring|members)')[ \t]*=[ \t]*(?=\[))|"""
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'|#[^\n]*|[\[\]]",
    re.DOTALL,
)  # fmt: skip
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class RingText:
    """The text of a file with other orders.

    Attributes:
        text: the text.
        unwritten: the exchanges whose order could not be written: one entry stands for several exchanges, and they need
            different orders.
        uncommented: the exchanges from whose ring a comment is gone.
    """

    text: str
    unwritten: tuple[str, ...] = ()
    uncommented: tuple[str, ...] = ()


class _Array(NamedTuple):
    start: int
    end: int
    has_comment: bool


def rearranged(text: str, orders: Mapping[str, Sequence[RingMember]]) -> RingText:
    """Return the text of a topology file with other members of some rings, as in another order or with their slots.

    A list that changes loses the comments between its brackets.

    Args:
        text: the file's text, without mistakes.
        orders: the new members of a ring, or those that share slots, by the name of the exchange.
    """
    document = tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
    entries: dict[str, list[FileEntry]] = {}
    for entry in read_document(document, FILE).exchanges:
        if _members_of(entry) is not None:
            entries.setdefault(entry.path, []).append(entry)
    arrays = _arrays_by_path(text)
    unwritten: list[str] = []
    uncommented: list[str] = []
    parts: list[tuple[_Array, str]] = []
    for path, exchanges in entries.items():
        wanted = {
            entry.value.name: tuple(orders.get(entry.value.name, _members_of(entry) or ()))
            for entry in exchanges
        }
        changed = [entry.value.name for entry in exchanges if wanted[entry.value.name] != _members_of(entry)]
        if not changed:
            continue
        if len(set(wanted.values())) > 1 or path not in arrays:
            unwritten += changed
            continue
        array = arrays[path]
        parts.append((array, members_text(member_texts(wanted[changed[0]]))))
        uncommented += changed if array.has_comment else []
    newline = "\r\n" if "\r\n" in text else "\n"
    for array, ring in sorted(parts, reverse=True):
        text = text[: array.start] + ring.replace("\n", newline) + text[array.end :]
    return RingText(text, tuple(unwritten), tuple(uncommented))


def _members_of(entry: FileEntry) -> tuple[RingMember, ...] | None:
    """Return the members of an exchange's ring, or those that share its slots."""
    members: tuple[RingMember, ...] | None = (
        entry.value.ring if entry.value.slots is None else entry.value.members
    )
    return members


def _arrays_by_path(text: str) -> dict[str, _Array]:
    """Return where the ring or the members of each exchange are written, by the place of its entry.

    `tomllib` tells no positions. It tells which number takes the place of which ring.
    """
    arrays = list(_arrays(text))
    numbered = text
    for number, array in reversed(list(enumerate(arrays))):
        numbered = f"{numbered[: array.start]}{number}{numbered[array.end :]}"
    exchanges: list[dict[str, Any]] = tomllib.loads(numbered.removeprefix(_BYTE_ORDER_MARK)).get(
        "exchanges", []
    )
    numbers = [exchange.get("ring", exchange.get("members")) for exchange in exchanges]
    return {f"exchanges[{n}]": arrays[number] for n, number in enumerate(numbers) if isinstance(number, int)}


def _arrays(text: str) -> Iterator[_Array]:
    """Yield each array that is the value of a key `ring` or `members`, an exchange's or not, but none within another."""
    start, depth, has_comment = None, 0, False
    for token in _TOKEN.finditer(text):
        if start is None:
            if token["key"]:
                start, depth, has_comment = token.end(), 0, False
        elif token[0] == "[":
            depth += 1
        elif token[0] == "]":
            depth -= 1
            if depth == 0:
                yield _Array(start, token.end(), has_comment)
                start = None
        elif token[0].startswith("#"):
            has_comment = True
