"""``rabbit-chx arrange``: rewrite the rings of a topology file to move the fewest keys, and list the slots of each queue."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, option, options, say
from rabbit_chx.cli.inputs import VariableOptions, read_topology
from rabbit_chx.cli.plan_report import LivePlan
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import say_unrecorded_rings
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Verbatim
from rabbit_chx.topology.file.toml_file import members_of, members_text, rearrange
from rabbit_chx.topology.planning.ring_plan import KeyMapPlan, RingProposal
from rabbit_chx.topology.targets import reordered
from rabbit_chx.words import percent


def _shares(rings: Iterable[tuple[KeyMapPlan, RingProposal]]) -> list[dict[str, Any]]:
    return [
        {
            "exchange": ring.exchange,
            "before": {"moved": ring.moved, "moved_at_worst": ring.moved_at_worst},
            "after": {"moved": order.moved, "moved_at_worst": order.moved_at_worst},
        }
        for ring, order in rings
    ]


@command(example="rabbit-chx arrange topology.toml --ring-via 'docker exec rabbitmq' --write")
def arrange(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    write: bool = option(is_flag=True, help="Write to FILE instead of stdout."),
) -> Outcome:
    """Print FILE with the members of each ring in the order that moves the fewest keys of the live ring.

    The members of an exchange with slots get a list of slots instead of a weight: those that they have on the
    broker, as far as the weights permit. Comments in a changed list of members are lost. stderr reports the
    keys that each ring moves, before and after.

    FILE is a topology file; - is stdin. The live rings must be known: by their records, or by --ring-via.

    The exit code is 3 if a list with variables is not written; stderr has it.
    """
    at = broker.live()
    if write and file == "-":
        raise InputError("stdin cannot be written: leave --write out, or pass a file")
    vhost = at.settings.vhost
    given = read_topology(file, vhost, variables=variables)
    if given.is_definitions:
        raise InputError(
            Fix(
                f"{given.name} is a definitions file, which does not contain the order of rings: convert it with ",
                replace(to_type("export", **{"from": file}), output="topology.toml"),
                ", and arrange the result",
            )
        )
    with at.open() as opened:
        read = LivePlan.read(opened, given, vhost)
        say_unrecorded_rings(read.live)
    plan = read.plan
    better = {
        name: (ring, order)
        for name, ring in plan.rings.items()
        for order in ring.proposals
        if order.strategy == "least-moving-order"
    }
    members = {exchange.name: members_of(exchange) for exchange in reordered(plan, read.live).exchanges}
    done = rearrange(given.text, members, given.variables)
    slotted = {exchange.name: exchange for exchange in given.topology.exchanges if exchange.slots is not None}
    for ring in (ring for name, ring in plan.rings.items() if ring.is_ring and name not in slotted):
        _report_moves(ring, better[ring.exchange][1] if ring.exchange in better else None)
    pins = [name for name, exchange in slotted.items() if members[name] != exchange.members]
    pinned = tuple(name for name in pins if name not in done.unwritten)
    for name in slotted.keys() - {*pins}:
        say(f"{name}: its members already list their slots")
    for name in pinned:
        say(f"{name}: each member lists its slots")
    for name in done.unwritten:
        better.pop(name, None)
        say(
            f"{name}: its members are not written, because one entry describes several exchanges, or its list has variables or is not in "
            f"brackets: write by hand {members_text(members[name])}"
        )
    for name in done.uncommented:
        say(f"{name}: its list of members was rewritten without its comments")
    if write:
        if done.text != given.text:
            _replace(Path(file), done.text)
        say(f"{file} is unchanged" if done.text == given.text else f"{file} is written")
    code = ExitCode.PARTLY if done.unwritten else ExitCode.DONE
    text = None if write else done.text
    fields = Data({"rings": _shares(better.values()), "pinned": pinned, "text": text})
    return Outcome(Document("arrange", [fields, *([] if text is None else [Verbatim(text)])]), code)


def _report_moves(ring: KeyMapPlan, order: RingProposal | None) -> None:
    if not ring.before.buckets:
        return
    written = f"{ring.exchange}: {_figures(ring)} as written"
    if order is not None:
        say(f"{written}, {_figures(order)} in this order")
    elif not ring.before.ground.is_certain:
        say(
            f"{ring.exchange}: the ring was not read, it is {ring.before.ground}: pass --ring-via to arrange it"
        )
    elif ring.proposals:
        say(f"{written}; another order does not move fewer")
    elif ring.moved or ring.moved_at_worst:
        say(f"{written}; another order is not proposed, because the exchange or a member is replaced")


def _figures(moving: KeyMapPlan | RingProposal) -> str:
    return f"{percent(moving.moved)} of the keys move ({percent(moving.moved_at_worst)} at the peak)"


def _replace(path: Path, text: str) -> None:
    """Write a file atomically; it keeps its permissions, and a link stays a link."""
    target = path.resolve()
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as temporary:
            temporary.write(text.encode())
        shutil.copymode(target, temporary.name)
        Path(temporary.name).replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
