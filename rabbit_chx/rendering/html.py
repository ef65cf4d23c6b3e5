"""A document as HTML: one page that needs nothing else, a part of a page for a notebook, or the body for a page of the browser.

The markup is in `templates/`, written by Jinja2 with autoescape: names of queues are input. Pictures are SVG without texts, so that they
stretch to any width; what they show is in their tooltips, in the legend and in the table below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering.document import MOST_BARS, Document, Facts, Table, printable
from rabbit_chx.rendering.output import (
    ConsoleOutput,
    JsonOutput,
    MarkdownOutput,
    Output,
    PrometheusOutput,
    find_code,
    unfold,
    write_utf8,
)

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = files("rabbit_chx.rendering") / "templates"
#: The colours of `style.css`; names beyond them share colours.
_COLOURS = 20
#: The most names of a legend.
_MOST_NAMES = 40


class HtmlOutput(Output):
    """For a browser: one page with its style, without scripts."""

    use = "is one file for a browser"
    takes = "pictures"

    def show(self, document: Document) -> None:
        """Write the page, in UTF-8 whatever the encoding of the stream.

        Args:
            document: the result to write.
        """
        page = environment().get_template("page.html")
        title = document.title or f"rabbit-chx {document.name}".strip()
        head = {"title": title, "about": document.about, "lead": document.lead}
        write_utf8(self._stream, page.render(**head, style=_style(), **body_of(document)))


def part_of_page(make: Callable[[], Document]) -> str | None:
    """Return the document that `make` makes as a part of a page, with its style; None without Jinja2, and if there is no document: a notebook then shows the text of the value."""
    try:
        template = environment().get_template("notebook.html")
        return template.render(style=_style(), **body_of(make()))
    except RabbitChxError:
        return None


def _style() -> str:
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


def body_of(document: Document) -> dict[str, Any]:
    """Return what the template ``blocks.html`` needs for the blocks of a document: the blocks, their pictures, and the colour of each name in them."""
    blocks = list(document.blocks())
    pictures = {id(block): block.pictures() for block in unfold(blocks) if isinstance(block, (Facts, Table))}
    names = dict.fromkeys(
        name for drawn in pictures.values() for picture in drawn for name in picture.names()
    )
    colours = {name: number % _COLOURS for number, name in enumerate(filter(None, names))}
    return {"blocks": blocks, "look": {"pictures": pictures, "colours": colours}}


@cache
def environment(*packages: str) -> Environment:
    """Return the templates of this package, and before them those of the folder `templates` of other packages.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    from rabbit_chx.version import missing_extra
    from rabbit_chx.words import percent

    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ModuleNotFoundError:
        raise missing_extra("a page in HTML", "jinja2", "cli") from None

    folders = [*(files(package) / "templates" for package in packages), TEMPLATES]

    def text_of(name: str) -> str | None:
        for folder in folders:
            if (folder / name).is_file():
                return (folder / name).read_text(encoding="utf-8")
        return None

    made = Environment(
        autoescape=True,
        loader=FunctionLoader(text_of),  # the package may be in an archive
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "kind": lambda value: type(value).__name__,
        "id": id,
        "pieces": find_code,
        "percent": percent,
        "cell": _cell,
        "printable": printable,
    }
    made.globals |= {"MOST_BARS": MOST_BARS, "MOST_NAMES": _MOST_NAMES}
    return made


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


# -- The forms of a document, by the name that a user types


#: The formats by name, in the order of the help.
FORMATS: Mapping[str, type[Output]] = {
    "table": ConsoleOutput,
    "json": JsonOutput,
    "markdown": MarkdownOutput,
    "html": HtmlOutput,
    "prometheus": PrometheusOutput,
}
