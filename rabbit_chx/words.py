"""Counts, shares, lists of names and errors of others in words, the same in every error, finding and report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

#: What a secret in the output of a program, or in its command line, may look like: the password of a URL, the value of a variable or an
#: option of that name, and a long word with digits, such as a token.
_SECRETS = re.compile(
    r"(?P<before>://[^\s:@/]*:|\b[A-Z_]+=|(?i:passw\w*|secret|token|bearer|basic)[ =:]+)[^\s'\"]+"
    r"|(?<![\w.-])(?=[\w+/=.-]*[0-9])(?=[\w+/=.-]*[A-Za-z])[\w+/=.-]{20,}"
)
#: The most names in a sentence about one object of many.
FEW = 3


def plural(count: int, what: str, many: str | None = None) -> str:
    """Return a count and a noun, such as ``2 buckets``; without `many` its plural has an s."""
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


class ShareByWeight(float):
    """A share, 0 to 1, of a ring whose order is not known: by weight. Orders differ by less than 0.05 %, so it has one decimal in percent."""

    def __add__(self, other: float) -> ShareByWeight:
        """Return the sum, which has one decimal, too."""
        return ShareByWeight(round(float(self) + other, 3))

    __radd__ = __add__


def percent(share: float, decimals: int = 3) -> str:
    """Return a share, 0 to 1, in percent with some decimals; a share above 0 is never shown as 0, but as ``<0.001%``."""
    if isinstance(share, ShareByWeight):
        decimals = 1
    text = f"{share:.{decimals}%}"
    return f"<{10**-decimals:.{decimals}f}%" if share > 0 and text == f"{0:.{decimals}%}" else text


def share_text(share: float | None) -> str:
    """Return a share in percent; ``some``, if it depends on an order that is not known."""
    return "some" if share is None else percent(share)


def percent_or_blank(share: float | None) -> str:
    """Return a share in percent; nothing if it is not known."""
    return "" if share is None else percent(share)


def listed(texts: Sequence[str], most: int = 10, separator: Literal[",", ";"] = ",") -> str:
    """Return the first of some texts and the number of the others, such as ``a, b and 3 more``; use a semicolon for texts with commas."""
    more = len(texts) - most
    rest = f"{'' if separator == ',' else separator} and {more:,} more" if more > 0 else ""
    return f"{separator} ".join(texts[:most]) + rest


def with_counts(text: str, counts: Iterable[tuple[int, str]]) -> str:
    """Return a text with what there is more than 0 of, such as ``3 of 4 rows confirmed, 1 unknown``."""
    return ", ".join([text, *(f"{count:,} {what}" for count, what in counts if count)])


def outline(text: str) -> str:
    """Return what a text is that is not understood, without showing it: it may contain a secret."""
    text = text.strip()
    return f"begins {text[:1]!r} and has {plural(len(text), 'character')}"


def without_secrets(text: str) -> str:
    """Return what another program printed, or its command line, with ``***`` for what may be a secret."""
    return _SECRETS.sub(lambda found: f"{found['before'] or ''}***", text)


def error_text(error: BaseException) -> str:
    """Return the text of an error of foreign code, on one line; the name of its type if it has none, or if its ``__str__`` fails."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001  # of foreign code, while an error of it is handled
        text = ""
    return text or type(error).__name__


def typed_error_text(error: BaseException) -> str:
    """Return the type and the text of an error of foreign code."""
    name = type(error).__name__
    text = error_text(error)
    return name if text == name else f"{name}: {text}"
