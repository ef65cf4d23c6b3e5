"""The load of the members of an exchange: a sample of keys, and what a report says about it."""

from __future__ import annotations

from collections.abc import Mapping

from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.slot_load import SlotLoad, SlotSample
from rabbit_chx.cli.samples import KeySource, StreamedSample
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.planning.refusals import know_rings


def read_load(keys: KeySource, arguments: Mapping[str, str], key_map: KeyMap) -> SlotSample:
    """Count the keys of a sample. The memory use does not grow with a file."""
    hashing = keys.hashing(Hashing(arguments.get("hash-header"), arguments.get("hash-property")))
    batches = StreamedSample(keys, hashing, key_map)
    with batches.name_errors():
        load = SlotLoad.of_keys(key_map, batches, hashing=hashing)
    counted = int(sum(load.messages.values()))
    if not counted:
        raise InputError(
            f"{keys.name} does not contain a key that reaches a member: pass a sample of the exchange's own keys"
        )
    return SlotSample(load, counted + load.nowhere, keys.name)


def check_certain(exchange: str, slots: KeyMap) -> None:
    """Raise an error for a ring that is assumed: the member of a key is then not known."""
    if not slots.ground.is_certain:
        raise InputError(
            Fix(
                f"the ring of {exchange!r} was not read but is {slots.ground}, so the member of a key is not known: ",
                know_rings({exchange: slots}),
            )
        )
