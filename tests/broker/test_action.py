"""The steps of action.yml as a runner runs them: with a real broker, and the real `gh` on a small API of GitHub."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from canary import CANARY, canary_user
from declared import with_login
from installed_wheels import installed_wheels
from programs import program
from shop import Shop

pytestmark = [pytest.mark.broker, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
_, PLAN, _, COMMENT, _ = STEPS
DEFAULTS = {name: given["default"] for name, given in ACTION["inputs"].items() if "default" in given}
TOKEN = secrets.token_hex()
LOGIN = "github-actions[bot]"
MARKER = "<!-- rabbit-chx plan of topology.toml topology.toml -->"
FILE = """
max_share_moved = {limit}
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{{ queue = "q3", weight = 2 }}, {{ queue = "q1", weight = 10 }}, {{ queue = "q2" }}]
[[queues]]
name = "q{{1..3}}"
"""


class GitHub(ThreadingHTTPServer):
    """The API of GitHub with the comments of a pull request. `gh` reaches it as a proxy, since that is how it can be directed here."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: list[dict[str, Any]] = [
            {"id": 1, "user": {"login": "mallory"}, "body": f"{MARKER}\r\nplease review"},
            {"id": 2, "user": {"login": LOGIN}, "body": f"a quotation:\r\n{MARKER}"},
            {"id": 3, "user": None, "body": MARKER},
        ]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: GitHub

    def do_GET(self) -> None:
        self._answer(self.server.comments)

    def do_POST(self) -> None:
        assert self.headers["authorization"] == f"token {TOKEN}"
        content: dict[str, str] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        comments = self.server.comments
        if self.path.endswith("/graphql"):
            assert content["query"] == "{viewer{login}}"
            self._answer({"data": {"viewer": {"login": LOGIN}}})
            return
        if self.command == "POST":
            comments.append({"id": len(comments) + 1, "user": {"login": LOGIN}})
        number = len(comments) if self.command == "POST" else int(self.path.rpartition("/comments/")[2])
        comments[number - 1]["body"] = content["body"].replace("\n", "\r\n")
        self._answer({})

    do_PATCH = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def _answer(self, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def github() -> Iterator[GitHub]:
    """A server with comments by others: a user, with and without the first line of a plan, and a deleted user."""
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Runner:
    """What a runner does with the steps of a composite action."""

    def __init__(self, folder: Path, github: GitHub, **inputs: str) -> None:
        self.folder = folder
        self.inputs = {"token": TOKEN, **inputs}
        self.printed = ""
        self.attached: dict[str, str] = {}
        self._environment = {
            "PATH": f"{Path(program('gh')).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "RUNNER_TEMP": str(folder),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(folder / "wheels"),
            "GH_HOST": "github.localhost",  # the host for which gh uses http
            "http_proxy": f"http://127.0.0.1:{github.server_port}",
        }

    @property
    def outputs(self) -> dict[str, str]:
        """What the steps have written; a later line replaces an earlier one."""
        written = self.folder / "output"
        return (
            dict(line.split("=", 1) for line in written.read_text().splitlines()) if written.exists() else {}
        )

    def run(self) -> int:
        """Run the steps until one fails; return its exit code. The first step, which installs the program, is run once."""
        steps = STEPS[(self.folder / "rabbit-chx").exists() :]
        return next((code for step in steps if (code := self.run_step(step))), 0)

    def run_step(self, step: dict[str, Any]) -> int:
        """Run one step, and return its exit code."""
        assert step.get("if", "github.event.pull_request") == "github.event.pull_request"
        if "uses" in step:
            assert step["uses"].startswith("actions/upload-artifact@")
            assert step["with"]["path"] == "${{ runner.temp }}/plan.html"
            self.attached[self.outputs["artifact"]] = (self.folder / "plan.html").read_text()
            return 0
        values = {f"inputs.{name}": value for name, value in (DEFAULTS | self.inputs).items()} | {
            "github.action_path": str(ROOT),
            "github.repository": "shop/topology",
            "github.server_url": "https://github.com",
            "github.run_id": "9",
            "github.event.pull_request.number": "7",
            "steps.plan.outputs.exit-code": self.outputs.get("exit-code", ""),
        }
        given = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)
            for name, text in step["env"].items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={**self._environment, **given},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.printed += done.stdout + done.stderr
        return done.returncode


@pytest.mark.slow
def test_the_plan_is_a_comment_that_each_push_updates_and_is_applied_by_its_checksum(
    shop: Shop, github: GitHub, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    packages = ("numpy", "pamqp", "pika", "click", "jinja2", "markupsafe", "hatchling")
    installed_wheels(tmp_path / "wheels", *packages, "hatch-fancy-pypi-readme")
    comments = github.comments
    others = [dict(one) for one in comments]
    file = tmp_path / "topology.toml"
    with canary_user(shop.management, shop.settings.vhost) as user:
        runner = Runner(
            tmp_path,
            github,
            url=with_login(shop.broker.url, user, CANARY),
            **{
                "management-url": with_login(str(shop.broker.management_url), user, CANARY),
                "ring-via": shop.via[1],
            },
        )
        file.write_text(FILE.format(limit=0.01))
        assert runner.run() == 1, "refused: the step `Fail` ends with 1"
        assert runner.outputs["exit-code"] == "4", runner.printed
        assert len(comments) == 4
        assert comments[3]["body"].splitlines()[0] == MARKER
        assert "--allow moved=" in comments[3]["body"]
        assert "of all keys move" in runner.attached["plan-topology.toml"]

        file.write_text(FILE.format(limit="1"))
        assert runner.run() == 0, runner.printed
        checksum = runner.outputs["checksum"]
        assert (runner.outputs["exit-code"], len(checksum)) == ("1", 64)
        assert int(runner.outputs["changes"]) > 0
        assert len(comments) == 4
        assert "--allow moved=" not in comments[3]["body"]
        assert "unbind" in comments[3]["body"]
        summary = (tmp_path / "summary").read_text()
        assert summary.endswith(comments[3]["body"].replace("\r\n", "\n"))

        assert comments[:3] == others

        runner.inputs["checksum"] = "0" * 64
        assert runner.run() == 4, runner.printed
        runner.inputs["checksum"] = checksum
        assert runner.run() == 0, runner.printed
        assert "applied" in runner.printed
        del runner.inputs["checksum"]
        assert runner.run() == 0, runner.printed
        assert (runner.outputs["exit-code"], runner.outputs["changes"]) == ("0", "0")

        file.write_text("nothing = 1")
        assert runner.run() == 2
        assert "topology.toml has" in runner.printed
        assert len(comments) == 4
    for text in (runner.printed, summary, str(comments), str(runner.attached)):
        assert CANARY not in text
        assert TOKEN not in text


@pytest.mark.slow
def test_each_pair_of_file_and_name_has_its_comment(github: GitHub, tmp_path: Path) -> None:
    """Without a topology file the plan step ends after it has written the first line of the comment."""
    (tmp_path / "rabbit-chx").symlink_to(sys.prefix)
    pairs = [("topology.toml", name) for name in ("prod", "-->", "a\nb", "a prod", "ü*")] + [("prod", "")]
    for file, name in [*pairs, pairs[0], pairs[3], ("prod", "prod")]:
        runner = Runner(tmp_path, github, file=file, name=name, **{"url": "", "management-url": ""})
        assert runner.run_step(PLAN) == 2, runner.printed
        assert runner.run_step(COMMENT) == 0, runner.printed
    first_lines = [comment["body"].splitlines()[0] for comment in github.comments[3:]]
    written = (re.fullmatch(r"<!-- rabbit-chx plan of ([^ >]+) ([^ >]+) -->", line) for line in first_lines)
    found = [tuple(map(unquote, each.groups())) for each in written if each]
    assert found == [(file, name or file) for file, name in pairs]


def test_a_plan_that_is_too_long_for_a_comment_is_in_the_summary(github: GitHub, tmp_path: Path) -> None:
    runner = Runner(tmp_path, github)
    (tmp_path / "plan.md").write_text("<!-- rabbit-chx plan of a -->\n" + "x" * 70_000)
    assert runner.run_step(COMMENT) == 0, runner.printed
    first, second = github.comments[-1]["body"].splitlines()
    assert first == "<!-- rabbit-chx plan of a -->"
    assert second.endswith("see the summary of [the run](https://github.com/shop/topology/actions/runs/9).")
