"""docs/upgrades.md: the rehearsal is one, and the answers are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import ROOT, console_examples, page, run_command, run_doctest

from rabbit_chx.testing import need, skip_unless_ci
from rabbit_chx.testing.containers import image_version

PAGE = "docs/upgrades.md"
#: The tag and the patch of an image are those of the machine.
CONTAINER = re.compile(r"container \S+ \(RabbitMQ [0-9.]+\)")


def test_the_answers_are_those_of_the_library() -> None:
    run_doctest(PAGE)


@pytest.mark.broker
@pytest.mark.docker
@pytest.mark.timeout(400)
def test_the_rehearsal_prints_what_the_page_says(tmp_path: Path) -> None:
    need("docker")
    for series in ("3.10", "4.3"):
        if image_version(series) is None:
            skip_unless_ci(f"the image of RabbitMQ {series} is not on this machine")
    (topology,) = re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    (tmp_path / "topology.toml").write_text(topology)
    ((command, printed),) = console_examples(page(PAGE), "console docker")
    ran = run_command(command, 380, tmp_path)
    assert CONTAINER.sub("", ran.stdout.decode()) == CONTAINER.sub("", printed), ran.stderr.decode()


def test_what_was_before_is_gone() -> None:
    rows = re.findall(r"^\| (.*?) \| .* \|$", page(PAGE).partition("## Of this package")[2], re.MULTILINE)
    names = {
        name for row in rows for name in re.findall(r"`(?:Release\.)?(\w*(?:_\w+|Finding))(?:\(.*?\))?`", row)
    }
    assert len(names) > 6
    code = "".join(path.read_text() for path in (ROOT / "rabbit_chx").rglob("*.py"))
    assert {name for name in names if re.search(rf"\b{name}\b", code)} == set()
