"""Rings of a container's broker, read in a tenth of a second: tests that read hundreds cannot start ``rabbitmqctl`` for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.broker import DiagnosticsRing

if TYPE_CHECKING:
    from rabbit_chx.testing import RunningBroker

__all__ = ["quick_prefix", "quick_rings"]

# erl_call is a C program that comes with Erlang. It gets the expression that rabbitmqctl eval would get. It prints large numbers
# and long texts in ways of its own, so Erlang writes the answer to a file.
_ERL_CALL = """
answer=/tmp/rings.$$
printf 'file:write_file("%s", io_lib:format("~0p", [begin %s end])).\\n' "$answer" "${4%.}" |
    PATH=$PATH:/usr/lib/erlang/bin erl_call -sname "rabbit@$(hostname)" -c "$(cat /var/lib/rabbitmq/.erlang.cookie)" -e >&2
cat "$answer" && rm "$answer"
"""


def quick_prefix(broker: RunningBroker) -> tuple[str, ...]:
    """Return a command prefix, as for `DiagnosticsRing`.

    Args:
        broker: a broker in a container.
    """
    assert broker.ring_via is not None
    return (*broker.ring_via, "sh", "-c", _ERL_CALL, "sh")


def quick_rings(broker: RunningBroker) -> DiagnosticsRing:
    """Return a ring source.

    Args:
        broker: a broker in a container.
    """
    return DiagnosticsRing(quick_prefix(broker))
