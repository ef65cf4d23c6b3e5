"""Make the site of the documentation in build/site: every page, a search, and the reference of the Python names.

Sphinx reads a copy of the repository, and adds pages of the packages that users import. docs/README.md determines the
part of the site of each page.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from types import FunctionType

import guarantees
import tables
from docutils import nodes
from site_links import broken_links
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.nodes import make_refnode

from rabbit_chx import __version__

_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = _ROOT / "build" / "site-source"
_SITE = _ROOT / "build" / "site"
_ROOMS = (
    "errors",
    "erlang",
    "amqp",
    "routing",
    "analysis",
    "topology",
    "publishing",
    "streams",
    "broker",
    "consuming",
    "testing",
)
PACKAGES = (*(f"rabbit_chx.{room}" for room in _ROOMS), "spark_connector", "rabbit_chx")
"""What users import; a name that several have is described with the first."""
_SETTINGS = {
    "project": "rabbit_chx",
    "release": __version__,
    "root_doc": "README",
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"],
    "include_patterns": [
        "*.md",
        "api/*.rst",
        "bench/*.md",
        "docs/**.md",
        "examples/*.md",
        "tests/*.md",
        "tests/vectors/*.md",
        "tests/support/routes/*.md",
        "tools/*.md",
    ],
    "html_theme": "furo",
    "html_title": "rabbit_chx",
    "html_static_path": [str(_ROOT / "tools" / "website.css")],
    "html_css_files": ["website.css"],
    "html_copy_source": False,
    "html_show_copyright": False,
    "default_role": "py:obj",
    "myst_heading_anchors": 4,
    "autodoc_member_order": "bysource",
    "autodoc_preserve_defaults": True,
    "napoleon_use_ivar": True,
    "python_use_unqualified_type_names": True,
    "maximum_signature_line_length": 90,
}
_RUNS = "docs/runs.md"
#: The pages that only the site has, with their texts.
_MADE: dict[str, Callable[[], str]] = {
    _RUNS: lambda: f"---\norphan: true\n---\n\n# Runs under faults\n\n{guarantees.runs()}\n",
    "docs/reference/topology-fields.md": lambda: (
        f"# Fields of a topology file\n\n{tables.topology_fields()}\n"
    ),
    "docs/rules.md": lambda: f"# Rules of each release\n\n{tables.rules()}\n",
    "docs/reference/api.md": lambda: (
        "# Public names\n\nThese names are the public interface. Import them from the package that lists them. "
        "Everything else may change in\nany release."
        f"\n\n{tables.public_names()}\n"
    ),
    "docs/reference/commands/options.md": lambda: f"# Options of all commands\n\n{tables.all_commands()}\n",
    "docs/reference/commands/findings.md": lambda: f"# Findings of checks\n\n{tables.all_findings()}\n",
}
_LINK = re.compile(r"\[([^]]*)\]\(([^)#:]+)\)")
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(.*?)">\s*<img alt="(.*?)"\s+src="(.*?)">\s*</picture>', re.DOTALL
)
_FIGURES = "".join(
    f"```{{figure}} \\{group}\n:alt: \\2\n:figclass: only-{shade}\n```\n"
    for group, shade in ((3, "light"), (1, "dark"))
)


def public_names(package: str) -> list[str]:
    """Return the names that a package is imported for."""
    module = import_module(package)
    own = (
        name
        for name, value in vars(module).items()
        if isinstance(value, (type, FunctionType))
        and value.__module__ == package
        and not name.startswith("_")
    )
    return sorted(getattr(module, "__all__", own), key=str.lower)


def write_source() -> None:
    """Write the folder that Sphinx reads: what is in the repository, and the pages of the packages."""
    shutil.rmtree(_SOURCE, ignore_errors=True)
    shutil.copytree(
        _ROOT,
        _SOURCE,
        ignore=shutil.ignore_patterns("build", "dist", ".[!cg]*", ".cache", ".git", "__pycache__"),
    )
    for path, text in _MADE.items():
        (_SOURCE / path).write_text(text(), encoding="utf-8")
    (_SOURCE / "api").mkdir()
    homes: dict[int, str] = {}
    for package in PACKAGES:
        names = {
            name: homes.setdefault(id(getattr(import_module(package), name)), package)
            for name in public_names(package)
        }
        here = [name for name, home in names.items() if home == package]
        described = [
            name for name in here if isinstance(getattr(import_module(package), name), (type, FunctionType))
        ]
        lines = [package, "=" * len(package), "", f".. automodule:: {package}"]
        lines += [f"   :members: {', '.join(described)}"] * bool(described) + [""]
        lines += [line for name in here if name not in described for line in _described_value(package, name)]
        lines += [_linked_name(home, name) for name, home in names.items() if home != package]
        (_SOURCE / "api" / f"{package}.rst").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _described_value(package: str, name: str) -> list[str]:
    """Return the description of a value without a docstring: the comment where it is defined."""
    value = getattr(import_module(package), name)
    homes = [
        home
        for home, module in sys.modules.items()
        if home.startswith(package) and vars(module).get(name) is value
    ]
    comments = [ModuleAnalyzer.for_module(home).find_attr_docs().get(("", name)) for home in homes]
    comment = next(filter(None, comments), None)
    if comment is None:
        sys.exit(
            f"{package}.{name} has no comment where it is defined: write one that begins with #: above it"
        )
    shown = shorten(re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", repr(value)), 300, placeholder=" ...")
    return [f".. py:data:: {name}", f"   :value: {shown}", "", *(f"   {line}" for line in comment), ""]


def _linked_name(home: str, name: str) -> str:
    """Return a link to a name, with the first sentence of its docstring."""
    text = inspect.getdoc(getattr(import_module(home), name)) or ""
    sentence = re.split(r"(?<=[.:])\s", text.replace("\n", " "), maxsplit=1)[0]
    return f"* :py:obj:`{name} <{home}.{name}>`: {sentence.rstrip(':')}"


def complete_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Give a page what is not for GitHub: the tree of the pages, pictures that follow the switch of the site, no links to folders."""
    folder = (_SOURCE / page).parent
    text = _LINK.sub(lambda link: link[1] if folder.joinpath(link[2]).is_dir() else link[0], source[0])
    source[0] = _PICTURE.sub(_FIGURES, text)
    if page == "README":
        source[0] += _tree("", ["/docs/README"])
        for part in (_ROOT / "docs" / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
            if pages := _pages(part):
                source[0] += _tree(part.partition("\n")[0], [f"/docs/{link}" for link in pages])
        source[0] += _tree(
            "Python reference",
            ["/docs/reference/api"] + [f"/api/{package}" for package in reversed(PACKAGES)],
        )
    elif page == "docs/guarantees":
        source[0] = source[0].replace("(figures/guarantees.jsonl)", f"({Path(_RUNS).name})")
    elif page == "docs/reference/topology":
        source[0] += _tree("", ["topology-fields"])
    elif page == "docs/how-it-routes":
        source[0] = source[0].replace("(../rabbit_chx/routing/rules.py)", "(rules.md)") + _tree("", ["rules"])
    elif page == "docs/reference/commands/README":
        source[0] += _tree(
            "", [*dict.fromkeys(re.findall(r"\]\((?!README)([\w-]+)\.md#", text)), "options", "findings"]
        )
    elif page.endswith("/README") and page != "docs/README":
        source[0] += _tree("", [link for link in _pages(text) if not link.startswith("..")])


def _pages(text: str) -> list[str]:
    return [link for _, link in _LINK.findall(text) if link.endswith(".md")]


def _tree(caption: str, pages: list[str]) -> str:
    lines = (posixpath.normpath(page) for page in dict.fromkeys(pages))
    return "\n".join(
        ("", "```{toctree}", ":hidden:", f":caption: {caption}" if caption else "", "", *lines, "```", "")
    )


def find_target(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Return the link to a name by its last part: a type is known by the module that defines it, and described in a package."""
    last = node["reftarget"].rpartition(".")[2]
    found = [
        (name, entry)
        for name, entry in env.domains.python_domain.objects.items()
        if name.rpartition(".")[2] == last
        and not entry.aliased
        and entry.objtype in {"class", "exception", "function", "data", "type"}
    ]
    if len(found) != 1:
        return None
    [(name, entry)] = found
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text, name)


def keep_colons(_: Sphinx, what: str, *event: object) -> None:
    """Keep the docstring of a property as it is: of a first line with a colon the first half would be taken for a type."""
    lines = event[-1]
    if what == "property" and isinstance(lines, list):
        lines[:0] = ["..", ""]  # a comment, not a type


def shown_signature(_: Sphinx, *event: object) -> tuple[str, object] | None:
    """Return the arguments of a dataclass as Python can read them: its defaults may be ``<factory>``."""
    *_rest, arguments, returned = event
    return (arguments.replace("<factory>", "..."), returned) if isinstance(arguments, str) else None


def forget_builtins(_: Sphinx, env: BuildEnvironment) -> None:
    """Forget that an alias such as ``tuple[str, str]`` is of ``builtins``: viewcode would list that and have no page of it."""
    vars(env)["_viewcode_modules"].pop("builtins", None)


def main() -> None:
    """Make the site; a warning of Sphinx or a broken link is an error."""
    write_source()
    app = Sphinx(
        _SOURCE,
        None,
        _SITE,
        _ROOT / "build" / "site-doctrees",
        "html",
        _SETTINGS,
        status=None,
        warningiserror=True,
    )
    app.connect("source-read", complete_page)
    app.connect("missing-reference", find_target)
    app.connect("autodoc-process-docstring", keep_colons, priority=100)
    app.connect("autodoc-process-signature", shown_signature)
    app.connect("env-check-consistency", forget_builtins)
    app.build()
    shutil.copy(_SITE / "README.html", _SITE / "index.html")
    if broken := broken_links(_SITE):
        sys.exit("\n".join(["broken links:", *broken]))
    if app.statuscode:
        sys.exit(app.statuscode)
    print(f"open {_SITE / 'index.html'}")


if __name__ == "__main__":
    main()
