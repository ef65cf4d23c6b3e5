"""What holds for every page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import ui_figures
from blocks import COMMAND_PAGES, PAGES, ROOT, page, run_doctest

from rabbit_chx.cli.app import app

EVERYWHERE = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (
        "",
        "bench",
        "examples",
        "tests",
        "tests/vectors",
        "tests/support/routes",
        "tools",
    )
    for path in (ROOT / folder).glob("*.md")
) + sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"")


def anchors(document: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page(document), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", EVERYWHERE)
def test_links_lead_somewhere(document: str) -> None:
    for target, anchor, image in LINK.findall(page(document)):
        path = (ROOT / document).parent.joinpath(target or image) if target or image else ROOT / document
        assert path.exists(), target or image
        if anchor:
            assert anchor in anchors(path.resolve().relative_to(ROOT).as_posix()), f"{target}{anchor}"


#: Pages whose answers are about files: test_topology.py.
WITH_FILES = {"docs/reference/topology.md", "docs/operate/upgrades.md"}


@pytest.mark.parametrize(
    "document", [path for path in EVERYWHERE if ">>> " in page(path) and path not in WITH_FILES]
)
def test_the_answers_are_those_of_the_library(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_doctest(document)


@pytest.mark.parametrize("document", EVERYWHERE)
def test_no_section_is_there_twice(document: str) -> None:
    headings = re.findall(r"^## .*", page(document), re.MULTILINE)
    assert len(set(headings)) == len(headings)


PROSE_OF_OTHERS = re.compile(
    r"<!-- [\w ]+: made by.*?<!-- end of|^ *```.*?^ *```$|`[^`]*`|<picture>.*?</picture>",
    re.DOTALL | re.MULTILINE,
)


#: What is not a sentence of a page.
NO_SENTENCE = re.compile(
    PROSE_OF_OTHERS.pattern + r"|\[[^\]]*\]\([^)]*\)|\*\*.*?\*\*|^(?:#|\|)[^\n]*$", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("document", [*PAGES, *COMMAND_PAGES])
def test_a_page_with_words_of_the_model_links_to_it(document: str) -> None:
    words = re.findall(r"\b(?:ring|bucket|slot)s?\b", NO_SENTENCE.sub("", page(document)))
    first_page = document.endswith("README.md") and document not in COMMAND_PAGES
    assert not words or first_page or document == "docs/model.md" or "model.md" in page(document)


@pytest.mark.parametrize("folder", sorted({path.parent for path in (ROOT / "docs").rglob("*.md")}), ids=str)
def test_the_first_page_of_a_folder_names_every_page(folder: Path) -> None:
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = [*folder.glob("*.md"), *folder.glob("*/README.md")]
    named = [path.relative_to(folder).as_posix() for path in pages if path != folder / "README.md"]
    assert [name for name in named if not re.search(rf"\({name}[)#]", index)] == []


def test_every_command_in_a_sentence_is_understood() -> None:
    """Those of blocks are run. `rabbit-chx check orders` is parsed, and not run."""
    commands = {
        command
        for document in EVERYWHERE
        for command in re.findall(
            r"`rabbit-chx ([^`;>]+)",
            re.sub(r"^```.*?^```$", "", page(document), flags=re.DOTALL | re.MULTILINE),
        )
    }
    assert commands
    for command in commands:
        words = shlex.split(command)
        context = app.make_context("rabbit-chx", [], resilient_parsing=True)
        while isinstance(context.command, click.Group) and words and not words[0].startswith("-"):
            found = context.command.get_command(context, words.pop(0))
            assert found is not None, command
            context = click.Context(found, parent=context)
        context.command.make_parser(context).parse_args(words)


def test_the_pictures_of_the_browser_are_of_these_templates() -> None:
    """`pytest tests/broker/test_ui.py -k figures` makes them anew."""
    assert ui_figures.are_new()


#: What the programs and files of a page make on a broker: exchanges, queues and streams.
MADE = re.compile(
    r"""(?:declare\(|queue_declare\(|\bstream=|super_stream=|^name = )"([\w-]+)""", re.MULTILINE
)
#: Pages whose files are read and not applied, or applied in vhosts of their own.
NOT_APPLIED = ("docs/operate/upgrades.md", "docs/testing.md", "docs/reference/topology.md")


def test_each_page_uses_names_of_its_own() -> None:
    """So it can be typed on a broker that has seen the other pages."""
    made = {
        path: {
            name
            for block in re.findall(
                r"^ *```(?:python|toml)\n(.*?)^ *```", page(path), re.DOTALL | re.MULTILINE
            )
            for name in MADE.findall(block)
        }
        for path in (*PAGES, "README.md")
        if path not in NOT_APPLIED
    }
    twice = [(path, other, made[path] & made[other]) for path in made for other in made if path < other]
    assert [found for found in twice if found[2]] == []
    assert any(made.values())
