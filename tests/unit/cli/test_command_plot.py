"""`--plot FILE`: the picture of a result, beside the result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import BIND, Ran
from matplotlib.image import imread
from modelled_commands import ModelledCommands

from rabbit_chx import Topology

FILE = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]\n'
QUEUES = '[[queues]]\nname = "q{1..3}"\n'
BEGINNINGS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "PNG": b"\x89PNG"}


@pytest.mark.parametrize("suffix", BEGINNINGS)
def test_the_suffix_is_the_format(ran: Ran, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"shares.{suffix}"
    assert ran("compare", *BIND, "--plot", str(path)) == ran("compare", *BIND)
    assert path.read_bytes().startswith(BEGINNINGS[suffix])


def svg_texts(path: Path) -> list[str]:
    """The texts of an SVG: matplotlib draws letters as paths, and names the text in a comment."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def test_a_change_is_drawn_as_what_it_moves(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "moves.svg"
    sample = ("--keys", "k{1..9}")
    assert ran("compare", *BIND, "--add", "q9=1", *sample, "--plot", str(path))[0] == 1
    assert {"arrives", "leaves", "q9"} <= {*svg_texts(path)}


def test_a_refused_plan_is_drawn_too_and_no_text_is_cut_at_the_edge(
    modelled: ModelledCommands, ran: Ran, tmp_path: Path
) -> None:
    modelled.holds(Topology.from_toml(FILE + QUEUES))
    wanted = f"max_share_moved = 0.05\n{FILE.replace('1..3', '2..3')}{QUEUES}"
    for suffix in ("svg", "png"):
        plot = ("--plot", str(tmp_path / f"plan.{suffix}"))
        code, out, _ = ran(*modelled.arguments("plan", wanted, *plot))
        assert (code, "Refused" in out) == (4, True)
    texts = {*svg_texts(tmp_path / "plan.svg")}
    assert {"as-written", "may move", "at worst"} <= texts
    assert any(text.startswith("Plan of ") and text.endswith(", vhost /") for text in texts)
    pixels = imread(tmp_path / "plan.png")[..., :3]
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1.0).all()
