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


def repair_fix(exchange: str, file: str | None, *, external: bool = False) -> str:
    """Return the command that repairs the ring: in the order of a file, or without a file by itself."""
    if external:
        return _ASK_OWNER
    return Fix(
        "run: ",
        repair_command(exchange, file),
        "; it shows the steps, and does them with ",
        Argument("apply", call="Broker.apply"),
    )


def repair_command(exchange: str, file: str | None, *, does_it: bool = False) -> CommandLine:
    """Return the command that repairs the ring of an exchange in the order of a file: it shows the steps, or does them."""
    target = f"healed(live, {exchange!r})" if file is None else f"restricted(wanted, live, {exchange!r})"
    ordered = () if file is None else (Argument("file", file),)
    call = f"plan({target}, live)"
    if does_it:
        return CommandLine("repair", f"Broker.apply({call})", (exchange,), (*ordered, Argument("apply")))
    return CommandLine("repair", call, (exchange,), ordered)
