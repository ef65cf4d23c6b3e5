"""A ring of a file, held against the library; what each command says about a ring is in the transcripts."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import Ran

from rabbit_chx import Topology

FILE = Path(__file__).resolve().parent / "transcripts" / "files" / "topology.toml"
KEYS = [f"key-{n}" for n in range(20)]


def test_slots_of_a_file_lead_to_the_queues_of_a_new_broker(ran: Ran) -> None:
    table = Topology.from_toml(FILE.read_text()).slots("events")
    code, out, _ = ran("route", "--topology", str(FILE), "--exchange", "events", *KEYS, "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert [found["destination"] for found in document["answers"]] == [
        table.destination_for(key) for key in KEYS
    ]
    assert document["ring"]["slots"] == {slot.name: table.owners[slot] for slot in table.slots}
