"""docs/reference/topology.md and docs/operate/upgrades.md: the files on them are read, and the answers are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import console_examples, page, run_command, run_doctest

from rabbit_chx import Topology

PAGE = "docs/reference/topology.md"


def files(path: str = PAGE) -> list[str]:
    """Return the TOML blocks of a page."""
    return re.findall(r"^```toml\n(.*?)^```$", page(path), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (PAGE, ("topology.toml", "orders.toml")),
        ("docs/operate/upgrades.md", ("topology.toml",)),
    ],
)
def test_the_answers_are_those_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, names: tuple[str, ...]
) -> None:
    for name, text in zip(names, files(path), strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    run_doctest(path)
    ((command, printed),) = console_examples(page(path))
    ran = run_command(command, 60, tmp_path)
    assert ran.stdout.decode() == printed, ran.stderr.decode()


def test_the_files_are_read() -> None:
    whole, orders, *others = files()
    Topology.from_toml(orders, values={"ENV": "prod", "QUEUES": "4"})
    for text in (whole, *others):
        Topology.from_toml(text)


def test_the_ranges_expand_as_on_the_page() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (.*) \|$", page(PAGE).partition("## Hash exchanges")[0], re.MULTILINE
    )
    said = {written: re.findall(r"`([^`]+)`", meaning) for written, meaning in rows}
    assert said
    for written, names in said.items():
        found = [queue.name for queue in Topology.from_toml(f'[[queues]]\nname = "{written}"').queues]
        if "10" in written:
            assert [found[0], found[1], found[-1], len(found)] == [*names, 10]
        else:
            assert found == names
