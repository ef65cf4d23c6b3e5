"""What a page or an SVG of ours says, read by the parsers of the standard library."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

_VOID = {"meta", "input", "br", "img"}


class Page(HTMLParser):
    """A page: its tags, its text, its tables. An error if a tag is not closed, or if the page needs another file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open
        check_alone(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def parsed_svg(text: str) -> ET.Element:
    """The root of an SVG that needs no other file."""
    check_alone(text)
    return ET.fromstring(text)  # noqa: S314  # our own text


def check_alone(text: str) -> None:
    """No address but the namespace of SVG, no script, no import of a style."""
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"<script|@import|javascript:|<link|\son[a-z]+=", text)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
