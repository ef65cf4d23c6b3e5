"""The broken links of a site."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links of a page, and what links can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Keep what is linked and what is named."""
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in {"href", "src", "srcset"} and value:
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Return each link between the pages of a folder whose page, file or anchor does not exist; web addresses are not checked."""
    pages = {path: _Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = path.parent.joinpath(unquote(parts.path)).resolve() if parts.path else path
            ids = pages[target].ids if target in pages else {parts.fragment}
            if not parts.scheme and not (target.is_file() and unquote(parts.fragment) in ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken
