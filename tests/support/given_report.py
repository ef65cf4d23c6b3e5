"""What people read of a document."""

from __future__ import annotations

import io

from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.output import ConsoleOutput


def console_text(document: Document, width: int = 200) -> str:
    """Return a document as the console shows it, so many columns wide."""
    stream = io.StringIO()
    ConsoleOutput(stream, width).show(document)
    return stream.getvalue()
