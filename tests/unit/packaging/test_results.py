"""Each result of a command is a document: no module writes its JSON or its text by hand."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Values whose JSON has computed members; they are parts of documents.
WITH_COMPUTED_MEMBERS = {
    "rabbit_chx/routing/flows.py": "the amounts by pairs, which JSON has as a list, and their sums",
    "rabbit_chx/topology/objects/changes.py": "the kind, the name and the differing fields of two objects",
}


def test_only_rendering_has_the_forms_of_a_result() -> None:
    found: dict[str, list[str]] = {}
    for top in ("rabbit_chx", "spark_connector"):
        for path in (ROOT / top).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            forms = [
                node.name
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name in ("as_json", "blocks")
            ]
            if forms and "rendering" not in path.parts:
                found[path.relative_to(ROOT).as_posix()] = forms
    assert found == {path: ["as_json"] for path in WITH_COMPUTED_MEMBERS}


def test_no_command_renders_its_result() -> None:
    """A plan is also written into a file; a page of the plan and a table for the question come before the result; a RING is read anew."""
    rendering = {"dumps", "render_table", "ConsoleOutput", "MarkdownOutput", "JsonOutput", "PrometheusOutput"}
    found = {
        path.name: names
        for path in sorted((ROOT / "rabbit_chx" / "cli").glob("*.py"))
        if (
            names := {
                name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Name | ast.Attribute)
                and (name := node.attr if isinstance(node, ast.Attribute) else node.id) in rendering
            }
        )
    }
    assert found == {
        "applying.py": {"ConsoleOutput", "MarkdownOutput"},
        "plan.py": {"dumps"},
        "ring_argument.py": {"dumps"},
    }
