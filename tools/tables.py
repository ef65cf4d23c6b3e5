"""The tables of the documents that are made from the code."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click

from rabbit_chx.analysis.findings import CHECK_KINDS, SHARD_KINDS, VERIFY_KINDS, WITH_FILE, severity_of
from rabbit_chx.cli.app import COMMANDS, app
from rabbit_chx.cli.command import Command
from rabbit_chx.options import Option
from rabbit_chx.routing.release import OLDEST, Numbers, Rule
from rabbit_chx.routing.rules import RULES
from rabbit_chx.topology.argument_table import toml_value
from rabbit_chx.topology.kinds import Kind
from rabbit_chx.topology.model import AnyTopology
from rabbit_chx.topology.schema import FILE, EntryType
from spark_connector.columns import COLUMNS
from spark_connector.options.common import ADDRESS_OPTIONS
from spark_connector.options.read_options import QUEUE_OPTIONS, READ_OPTIONS
from spark_connector.options.write_options import OPTIONS

_ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "rabbit_chx",
    "rabbit_chx.amqp",
    "rabbit_chx.analysis",
    "rabbit_chx.broker",
    "rabbit_chx.consuming",
    "rabbit_chx.erlang",
    "rabbit_chx.publishing",
    "rabbit_chx.routing",
    "rabbit_chx.streams",
    "rabbit_chx.testing",
    "rabbit_chx.topology",
    "spark_connector",
)
"""The packages whose ``__all__`` is public."""


def rules() -> str:
    """Return every rule of the server with the releases that follow it."""
    return table(("rule", "releases", "effect"), ((rule.about, _releases(rule), rule.says) for rule in RULES))


def finding_kinds(kinds: Mapping[str, str]) -> str:
    """Return the kinds of findings of a command."""
    return table(
        ("kind", "severity", "finding"),
        ((f"`{kind}`", severity_of(kind), says) for kind, says in kinds.items()),
    )


def all_findings() -> str:
    """Return the kinds of findings of each command, and those that mean something else in a comparison with a topology file."""
    tables = {
        "check": finding_kinds(CHECK_KINDS),
        "verify": finding_kinds(VERIFY_KINDS),
        "check, with a file": finding_kinds(WITH_FILE),
        "show, of shards": finding_kinds(SHARD_KINDS),
    }
    return "\n\n".join(f"## {command}\n\n{kinds}" for command, kinds in tables.items())


def _releases(rule: Rule) -> str:
    spans = "; ".join(_span(first, end) for first, end in rule.versions)
    return f"{spans} ({rule.store.capitalize()})" if rule.store else spans


def _span(first: Numbers, end: Numbers | None) -> str:
    bounds = [f"from {_dotted(first)}"] if first > OLDEST else []
    return ", ".join(bounds + ([f"before {_dotted(end)}"] if end else [])) or "all"


def _dotted(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))


def spark_columns() -> str:
    """Return the columns that a written DataFrame may have. Strings whose names say what they are share a line."""
    lines = [
        f"- `{column.name}`{_type_of(column.types)}: {column.meaning}" for column in COLUMNS if column.meaning
    ]
    others = ", ".join(f"`{column.name}`" for column in COLUMNS if not column.meaning)
    return "\n".join([*lines, f"- {others}: properties of AMQP"])


def options() -> str:
    """Return the options of a write by ``format("rabbitmq")``, a list for each group."""
    return _option_lists(OPTIONS)


def read_options() -> str:
    """Return the options of a read, a list for each group, without those of addresses, which writes have too."""
    return _option_lists(READ_OPTIONS[len(ADDRESS_OPTIONS) :])


def queue_options() -> str:
    """Return the options of a read of queues, without those of addresses."""
    return _option_lists(QUEUE_OPTIONS[len(ADDRESS_OPTIONS) :])


def _option_lists(options: Iterable[Option]) -> str:
    heading = ""
    groups: dict[str, list[str]] = {}
    for option in options:
        heading = option.heading or heading  # that of the options before
        default = f"default `{option.default_text}`" if option.default_text else ""
        type_ = _type_of(option.kind.text_label or option.kind.label, default)
        groups.setdefault(heading, []).append(f"- `{option.spark_name}`{type_}: {option.meaning}")
    return "\n\n".join(f"### {heading}\n\n" + "\n".join(group) for heading, group in groups.items())


def _type_of(label: str, default: str = "") -> str:
    """Return a type and a default in brackets; the page says that others are strings."""
    said = ", ".join(filter(None, ("" if label == "string" else label, default)))
    return f" ({said})" if said else ""


#: The field that all kinds of entries have.
_OWNER = (
    "Each entry of these lists also has the field `owner`, `ours` (default) or `external`. An `external` object is only checked, never "
    "declared or deleted."
)


def topology_fields() -> str:
    """Return the fields of a topology file, a list for each kind of entry."""
    parts = [f"## The file\n\n{_fields(FILE)}\n\n{_OWNER}"]
    for name, kind in FILE.fields.items():
        if isinstance(kind, EntryType):
            parts.append(f"## `[[{name}]]`\n\n{_fields(kind)}")
            parts += [
                f"Each entry of `{list_}`:\n\n{_fields(inner)}"
                for list_, inner in kind.fields.items()
                if isinstance(inner, EntryType)
            ]
    return "\n\n".join(parts)


def _fields(type_: EntryType) -> str:
    return "\n".join(
        f"- `{name}` ({_kind(kind)}{_default(type_, name)}): {meaning(type_, name)}"
        for name, kind in type_.fields.items()
        if name != "owner"
    )


def _kind(kind: Kind | EntryType) -> str:
    label = "array of tables" if isinstance(kind, EntryType) else kind.label
    return {"`true` or `false`": "boolean"}.get(label, label.replace("` or `", "`, `"))


def _default(type_: EntryType, name: str) -> str:
    if name in type_.required:
        return ", required"
    default = type_.defaults[name]
    return "" if default in (None, (), {}) else f", default `{toml_value(default)}`"


def meaning(type_: EntryType, name: str) -> str:
    """Return the description of a field of a topology file: that of its row, or else of the attribute, from the docstring of the class."""
    if written := next(row.meaning for row in type_.rows if row.name == name):
        return written
    model = AnyTopology if type_ is FILE else type_.model
    found = re.search(rf"^    {name}: (.*(?:\n {{5,}}.*)*)", inspect.getdoc(model) or "", re.MULTILINE)
    assert found is not None, (model, name)
    text = " ".join(found[1].split()).replace("``", "`")
    return text[0].upper() + text[1:]


def commands() -> Iterator[tuple[str, click.Context]]:
    """Yield the name of each command, such as ``check``, with its context."""
    context = app.make_context("rabbit-chx", [], resilient_parsing=True)
    for name in app.list_commands(context):
        if command := app.get_command(context, name):
            yield name, click.Context(command, context, name)


#: The sections of options that several commands have, each with a command that has all of them.
SHARED_OPTIONS = {
    "Ring": "route",
    "Message": "route",
    "Sample": "compare",
    "Broker": "route",
}


#: The page in docs/reference/commands/ of each command, if it is not `predict`.
_PAGES = {
    "ui": "look",
    "show": "look",
    "check": "look",
    "record": "repair",
    "repair": "repair",
    "export": "change",
    "plan": "change",
    "arrange": "change",
    "apply": "change",
    "completion": "README",
}


def page_of(command: str) -> str:
    """Return the page of a command in docs/reference/commands, with the anchor of its section."""
    page = _PAGES.get(command, "predict")
    return f"{page}.md#{command.replace(' ', '-')}"


def command_list() -> str:
    """Return the commands by purpose, each with a link to its page; `rabbit-chx --help` says what each one does."""
    return "\n".join(
        f"- **{purpose}**: {', '.join(f'[`{name}`]({page_of(name)})' for name in group)}"
        for purpose, group in COMMANDS.items()
    )


def all_commands() -> str:
    """Return the usage, the help and the options of every command; options that several commands have are at the end."""
    parts = [
        f"## {name}\n\n{_command_description(context)}\n\n{_command_options(context)}"
        for name, context in commands()
    ]
    shared = [f"## {section} options\n\n{_shared_options(section)}" for section in SHARED_OPTIONS]
    return "\n\n".join(parts + shared)


def _command_description(context: click.Context) -> str:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    paragraphs = (" ".join(part.split()) for part in str(context.command.help).split("\n\n"))
    return "\n\n".join([f"`{usage}`", *map(_with_code, paragraphs)])


def _with_code(text: str) -> str:
    """Return a text of the help with its options as code; text between backticks stays."""
    parts = text.split("`")
    parts[::2] = (
        re.sub(r"--[a-z][a-z-]*(?: [A-Z]{2,}(?:=[A-Z]+)?)?", r"`\g<0>`", part) for part in parts[::2]
    )
    return "`".join(parts)


def _command_options(context: click.Context) -> str:
    """Return a list of a command's own options, and links to the lists of those that it shares."""
    sections = _sections(context)
    own = [record for section in sections if section not in SHARED_OPTIONS for record in sections[section]]
    lines = [_option_line(record) for name, record in own if name != "--help"]
    links = []
    for section in SHARED_OPTIONS:
        names = [name for name, _ in sections.get(section, [])]
        every = sorted(name for name, _ in _shared(section))
        listed = "" if sorted(names) == every else f": {', '.join(f'`{name}`' for name in names)}"
        links += [f"[{section}](#{section.lower()}-options){listed}"] if names else []
    if links:
        lines.append(f"- Shared: {'; '.join(links)}")
    return "\n".join(lines) or "None."


def _shared_options(section: str) -> str:
    return "\n".join(_option_line(record) for _, record in _shared(section))


def _shared(section: str) -> list[tuple[str, tuple[str, str]]]:
    context = next(context for command, context in commands() if command == SHARED_OPTIONS[section])
    return _sections(context)[section]


def _sections(context: click.Context) -> dict[str, list[tuple[str, tuple[str, str]]]]:
    command = context.command
    return command.options_by_section(context) if isinstance(command, Command) else {}


def _option_line(record: tuple[str, str]) -> str:
    names, text = record
    shortened = text.replace("]  [", "; ").replace("  [", " [")
    return f"- `{names}`: {_with_code(shortened)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [_line(head), "| --- " * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def public_names() -> str:
    """Return each public name with its first sentence, a list for each package."""
    lists: list[str] = []
    homes: dict[str, str] = {}
    for package in PACKAGES:
        module = import_module(package)
        names = [
            name
            for name in sorted(module.__all__, key=str.lower)
            if homes.setdefault(name, package) == package
        ]
        lines = [f"- `{name}`: {first_sentence(getattr(module, name))}" for name in names]
        if lines:
            lists.append("\n".join([f"## `{package}`", "", *(line.removesuffix(": ") for line in lines)]))
    return "\n\n".join(lists)


def first_sentence(value: object) -> str:
    """Return the first sentence of a docstring as Markdown; "" for a value without a docstring."""
    text = (inspect.getdoc(value) or "") if isinstance(value, type) or inspect.isfunction(value) else ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0]
    return re.sub(r"``([^`]+)``", r"`\1`", re.sub(":+$", ".", sentence))


def levels() -> str:
    """Return a picture of the layers, the top one first, and a row for each package with what its docstring says it is."""
    layers = _layers()
    picture = [f"{level}  {layer}" for level, layer in layers.items()]
    rows = [_package_row(name) for layer in layers.values() for name in re.split(r" [|:] ", layer)]
    return "\n".join(["```text", *picture, "```", "", "| package | what it is |", "| --- | --- |", *rows])


def _layers() -> dict[int, str]:
    """Return the packages of each layer, by the import linter's contract in pyproject.toml; the top layer has the largest number."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    levels = range(len(layers), 0, -1)
    return {level: layer.replace("rabbit_chx.", "") for level, layer in zip(levels, layers, strict=True)}


def _package_row(name: str) -> str:
    folder = Path(name) if (_ROOT / name).is_dir() else Path("rabbit_chx", name)
    return _line((f"[`{folder}/`](../../{folder})", _summary(_ROOT / folder / "__init__.py")))


def _summary(file: Path) -> str:
    """Return the first sentence of the module's docstring, in Markdown, up to the colon that details follow."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = re.match(r"(?:``[^`]+``: )?.*?(?=: |\.(?: |$)|$)", " ".join(docstring.split()))
    return re.sub(r"``([^`]+)``", r"`\1`", first[0] if first else "").replace("|", "\\|")
