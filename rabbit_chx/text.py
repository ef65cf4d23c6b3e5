"""Counts, shares, lists of names and errors of others in words, the same in every error, finding and report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

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


# -- Values by the keys that some of them have in common


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, and the keys, in the order of the pairs."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


# -- Commands of the command line in texts
# A remedy names what to type, and behind it in parentheses what does the same in Python: "allow it with `--allow delete`
# (`allow_delete=True`)". A command stands between backticks. So the program, which prints the text, finds it and adds the options with
# which it was called itself, such as ``--url``: a command that is printed works when it is pasted.


#: A command in a text; what is quoted for the shell may contain a backtick.
COMMAND = re.compile(r"""`(rabbit-chx [a-z]+(?:'[^']*'|"[^"]*"|[^`'"])*)`""")
#: The end of a command whose output goes to a file.
_OUTPUT = re.compile(r"( > (?:'[^']*'|[^\s'])+)?$")

#: RING as a file, which is known by its suffix, or by a path that begins with a slash or with a dot and a slash; and the exchange in it.
FILE_RING = re.compile(r"(-|.*?\.(?:toml|json)|\.{0,2}/.*?)(?:#(.*))?", re.IGNORECASE | re.DOTALL)
#: The beginning of an argument that is the name of an exchange of the broker, whatever it looks like.
EXCHANGE_PREFIX = "exchange:"
#: What is bindings, an option or a name with its type.
_OTHER_RING = re.compile(rf"-|.*=|modulus:|super-stream:|{EXCHANGE_PREFIX}", re.DOTALL)


def command_text(verb: str, *words: str, output: str | None = None) -> str:
    """Return a command as a part of a text: between backticks, as a shell reads it.

    Args:
        verb: its name, such as ``repair``.
        words: its arguments and options.
        output: the file to which its output goes; None: it is shown.
    """
    command = shlex.join(["rabbit-chx", verb, *words])
    return f"`{command}`" if output is None else f"`{command} > {shlex.quote(output)}`"


def apply_text(file: str = "FILE") -> str:
    """Return the command that applies a topology file, and the call that is the same."""
    return f"{command_text('apply', file)} (`Broker.apply(plan(wanted, live))`)"


def exchange_argument(name: str) -> str:
    """Return an exchange of the broker as an argument: ``exchange:NAME`` if the name alone is read as something else."""
    is_other = _OTHER_RING.match(name) or FILE_RING.fullmatch(name)
    return f"{EXCHANGE_PREFIX}{name}" if is_other else name


def first_command(text: str) -> str | None:
    """Return the first command in a text, without its backticks; None for one without commands."""
    found = COMMAND.search(text)
    return None if found is None else found[1]


def with_options(text: str, options_of: Callable[[str], Iterable[tuple[str, str]]]) -> str:
    """Return a text with further options of each command.

    Args:
        text: the text; it may also be a command without backticks.
        options_of: returns the options of a command, each with its value. One that the command has already stays as it is.
    """

    def completed(command: str) -> str:
        own = shlex.split(command)
        end = _OUTPUT.search(command)
        assert end is not None  # it matches the empty end, too
        added = [f" {name} {shlex.quote(value)}" for name, value in options_of(command) if name not in own]
        return command[: end.start()] + "".join(added) + end[0]

    if COMMAND.fullmatch(f"`{text}`"):
        return completed(text)
    return COMMAND.sub(lambda found: f"`{completed(found[1])}`", text)


def in_vhost(text: str, vhost: str) -> str:
    """Return a text whose commands name a vhost, which may be another one than that of the command line."""
    return with_options(text, lambda _: [("--vhost", vhost)])
