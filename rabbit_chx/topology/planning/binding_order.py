"""In which order the bindings of several exchanges are made: what is downstream first.

A message that reaches an exchange goes on only if that exchange is bound already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["downstream_first"]


def downstream_first(exchanges: Iterable[str], targets: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the exchanges so that each comes after those that it is bound to. A circle is cut somewhere.

    Args:
        exchanges: the names of the exchanges.
        targets: the exchanges that each is bound to, by its name.
    """
    done: dict[str, None] = {}
    wanted = list(exchanges)
    for start in wanted:
        path = [(start, iter(targets.get(start, ())))]
        seen = {start}
        while path:
            name, following = path[-1]
            step = next((one for one in following if one not in done and one not in seen), None)
            if step is None:
                done[name] = None
                path.pop()
            else:
                seen.add(step)
                path.append((step, iter(targets.get(step, ()))))
    known = set(wanted)
    return [name for name in done if name in known]
