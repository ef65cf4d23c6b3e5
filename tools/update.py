"""Write the parts of the documents that are generated from the code: tables, the levels of the packages.

``make generated`` writes all of it; with ``--check`` nothing is written, and what differs is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import guarantees
import peer_table
import release_table
import tables
from output_schemas import output_schemas
from topology_schema import topology_schema

_ROOT = Path(__file__).resolve().parents[1]
_PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/contributing/architecture.md": {"levels": tables.levels},
    "bench/README.md": {"peers": peer_table.peers, "soak": guarantees.soak},
    "docs/guarantees.md": {"measured": guarantees.measured},
    "docs/reference/spark-options.md": {
        "columns": tables.spark_columns,
        "options": tables.options,
        "options of streams": tables.read_options,
        "options of queues": tables.queue_options,
    },
    "docs/reference/support.md": {"releases": release_table.releases},
    "docs/reference/commands/README.md": {"commands": tables.command_list},
}
"""What makes a part of a document, by the document and the name at its marks."""


def generated() -> dict[str, str]:
    """Return the text that each file has to have, by its path in the repository."""
    documents = {}
    for name, parts in _PARTS.items():
        text = (_ROOT / name).read_text(encoding="utf-8")
        for part, make in parts.items():
            text = _with_part(name, text, part, make())
        documents[name] = text
    return documents | output_schemas() | {"docs/reference/topology.schema.json": topology_schema()}


def differences() -> list[str]:
    """Return the paths of the files that are not as they have to be."""
    return [
        name
        for name, text in generated().items()
        if not (_ROOT / name).exists() or (_ROOT / name).read_text(encoding="utf-8") != text
    ]


def _with_part(document: str, text: str, part: str, content: str) -> str:
    begin, end = f"<!-- {part}: made by tools/update.py -->", f"<!-- end of {part} -->"
    marked = re.compile(rf"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise SystemExit(f"{document} has not one part between {begin} and {end}")
    return marked.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def main() -> None:
    """Write, or only compare."""
    different = differences()
    if sys.argv[1:] == ["--check"]:
        if different:
            sys.exit(f"differs from the code: {', '.join(different)}; run: make generated")
        return
    if sys.argv[1:]:
        sys.exit("usage: python tools/update.py [--check]")
    texts = generated()
    for name in different:
        (_ROOT / name).parent.mkdir(exist_ok=True)
        (_ROOT / name).write_text(texts[name], encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
