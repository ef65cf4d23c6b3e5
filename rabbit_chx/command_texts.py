"""Commands of the command line in texts.

A remedy names what to type, and behind it in parentheses what does the same in Python: "allow it with `--allow delete`
(`allow_delete=True`)". A command stands between backticks. So the program, which prints the text, finds it and adds the options with
which it was called itself, such as ``--url``: a command that is printed works when it is pasted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

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
