"""Types of message properties, so that a type checker finds a misspelt name or a value of another type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias, TypedDict

#: Headers by name, or pairs; a value is an `AmqpField`, or a Python value that a client hands out.
Headers: TypeAlias = Mapping[str, object] | Iterable[tuple[str, object]]
_Text: TypeAlias = str | bytes
_TextColumn: TypeAlias = Iterable[_Text | None]
_NumberColumn: TypeAlias = Iterable[int | None]


class MessageProperties(TypedDict, total=False):
    """The properties of a message. None is the publisher's own value, if any."""

    content_type: _Text | None
    content_encoding: _Text | None
    headers: Headers | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: _Text | None
    reply_to: _Text | None
    expiration: _Text | None
    message_id: _Text | None
    timestamp: int | datetime | None
    type: _Text | None
    user_id: _Text | None
    app_id: _Text | None
    cluster_id: _Text | None


class PropertyColumns(TypedDict, total=False):
    """Columns of properties, with one value for each message."""

    content_type: _TextColumn
    content_encoding: _TextColumn
    headers: Iterable[Headers | None]
    delivery_mode: _NumberColumn
    priority: _NumberColumn
    correlation_id: _TextColumn
    reply_to: _TextColumn
    expiration: _TextColumn
    message_id: _TextColumn
    timestamp: Iterable[int | datetime | None]
    type: _TextColumn
    user_id: _TextColumn
    app_id: _TextColumn
    cluster_id: _TextColumn
