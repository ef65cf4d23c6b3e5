"""What removes a finding: the commands that apply a topology, or that repair a ring."""

from __future__ import annotations

from rabbit_chx.fixes import Argument, CommandLine, Fix

_ASK_OWNER = "it is external: ask its owner, or correct the topology"


def apply_fix(file: str | None, *options: Argument, external: bool = False) -> str:
    """Return the command that applies the whole topology with some options, with the file's name if it is known."""
    if external:
        return _ASK_OWNER
    name = "FILE" if file is None else file
    permitted = "".join(f", {option}" for option in options)
    return Fix(
        "run: ",
        CommandLine("plan", "plan(wanted, live)", (name,)),
        ", and then: ",
        CommandLine("apply", f"Broker.apply(plan{permitted})", (name,), options),
    )


def repair_fix(exchange: str, *, external: bool = False) -> str:
    """Return the command that repairs the ring of an exchange by itself; that of a file is made true by an apply."""
    if external:
        return _ASK_OWNER
    return Fix(
        "run: ", CommandLine("repair", f"Broker.apply(plan(healed(live, {exchange!r}), live))", (exchange,))
    )
