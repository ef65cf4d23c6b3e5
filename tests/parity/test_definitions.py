"""What a broker imports has an empty plan and no difference; what it refuses is refused offline. An export has an empty plan.

Queues and policies are an exception: the broker alone judges the values of their arguments, and queues that are denied or that their type
cannot be. It refuses them before an apply has changed a ring; an import leaves some of them out without a word. A second exception: a
broker imports true as a routing key, which no message can have, and the commands refuse the file. Of two different entries of one queue a
broker takes either, so nothing is compared.

``DEFINITIONS=300`` tries so many files on 4.3, and a third of it on 3.10. Each file is imported into a vhost of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from definitions_files import definitions
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from quick_rings import quick_prefix

from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.testing import RunningBroker
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3000)]

_FILES = int(os.environ.get("DEFINITIONS", "60"))
_DIFFERENCES = {"missing", "unexpected", "different", "order"}
_POSITION = re.compile(
    r"the text|(exchanges|queues|bindings|policies|parameters|vhosts)(\[|[ .:])|(exchange|queue|policy) .*: [a-z]|[0-9]+ objects? that "
)
#: A refusal of the definition of a policy.
_POLICY_REFUSED = re.compile("are not recognised policy settings|is not a valid |no policy provided")


class Site:
    """A broker, whose vhosts get files; and commands about them."""

    def __init__(self, broker: RunningBroker, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert broker.management_url is not None
        self._broker, self._path, self._capsys = broker, path, capsys
        self._api = Management(broker.management_url, timeout_s=60)
        self._numbers = count()
        self.seen: Counter[str] = Counter()

    def try_file(self, content: dict[str, Any], default_type: str | None, *, is_whole: bool) -> None:
        """Import a file, and compare what the broker did with what the commands say."""
        vhost = f"definitions-{next(self._numbers)}"
        body = {"default_queue_type": default_type} if default_type else {}
        self._api.put("vhosts", vhost, body=body)
        if is_whole:
            content = {
                name: [{**entry, "vhost": vhost} if isinstance(entry, dict) else entry for entry in entries]
                for name, entries in content.items()
            }
            metadata = {"default_queue_type": default_type} if default_type else {}
            content["vhosts"] = [{"name": vhost, "metadata": metadata}]
        text = json.dumps(content)
        self._path.write_text(text)
        try:
            refusal = self._import(content, vhost, is_whole=is_whole)
            denied = self._denied_queues(content, vhost)
            if self._has_impossible_key(content):
                self.seen["impossible"] += 1
                self._check_refused(vhost, text)
            elif refusal is None and self._is_ambiguous(content):
                self.seen["ambiguous"] += 1
            elif refusal is None:
                self.seen["incomplete" if denied else "imported"] += 1
                self._check_imported(vhost, text, denied)
            elif denied or _POLICY_REFUSED.search(refusal):
                self.seen["denied"] += 1
            else:
                self.seen["refused"] += 1
                self._check_refused(vhost, text)
            self._check_export(vhost, text)
        finally:
            with suppress(BrokerRefusedError):  # of a vhost that the import has broken
                self._api.delete("vhosts", vhost)

    def _import(self, content: dict[str, Any], vhost: str, *, is_whole: bool) -> str | None:
        """Import a file; return why the broker refused it, None if it has all of it."""
        try:
            self._api.request("POST", "definitions", *([] if is_whole else [vhost]), body=content)
        except BrokerRefusedError as error:
            return str(error)
        # Before 4.0 an import succeeds without the bindings that the broker refuses.
        there = {self._identity(entry) for entry in self._api.request("GET", "bindings", vhost)}
        asked = [entry for entry in content["bindings"] if isinstance(entry, dict) and entry.get("source")]
        is_old = self._broker.version < "4"
        if is_old and not all(self._identity(entry) in there for entry in asked):
            return "bindings are missing"
        return None

    @staticmethod
    def _identity(entry: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(entry.get(field)) for field in ("source", "destination", "routing_key"))

    def _denied_queues(self, content: dict[str, Any], vhost: str) -> set[str]:
        """Return the names of the queues that the broker does not have, and refuses when each is declared by itself."""
        denied = set()
        there = {queue["name"] for queue in self._api.request("GET", "queues", vhost)}
        for entry in content["queues"]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name or name in there:
                continue
            body = {
                field: entry[field] for field in ("durable", "auto_delete", "arguments") if field in entry
            }
            try:
                self._api.put("queues", vhost, name, body=body)
            except BrokerRefusedError:
                denied.add(name)
            else:  # what the import has left out is not to be there for the commands
                self._api.delete("queues", vhost, name)
        return denied

    @staticmethod
    def _has_impossible_key(content: dict[str, Any]) -> bool:
        bindings = [entry for entry in content["bindings"] if isinstance(entry, dict)]
        return any(isinstance(entry.get("routing_key"), bool) for entry in bindings)

    @staticmethod
    def _is_ambiguous(content: dict[str, Any]) -> bool:
        """Return True if two entries declare one queue or exchange with different fields: the broker imports them at once, and either may win."""
        for kind in ("queues", "exchanges"):
            entries = [entry for entry in content[kind] if isinstance(entry, dict)]
            distinct = {json.dumps(entry, sort_keys=True): str(entry.get("name")) for entry in entries}
            if len(set(distinct.values())) < len(distinct):
                return True
        return False

    def _check_refused(self, vhost: str, text: str) -> None:
        release = ("--offline", "--release", self._broker.version)
        code, _, said = self._run("check", vhost, *release, str(self._path), live=False)
        assert code, ("the commands accept this file", text)
        assert _POSITION.search(said), (said, text)

    def _check_incomplete(self, code: int, out: str, said: str, text: str, denied: set[str]) -> None:
        """Compare the plan of a file with the queues that the broker has left out: the commands refuse the file, or the plan declares them."""
        if code == 2:
            assert _POSITION.search(said), (said, text)
            return
        assert code in (1, 4), ("the plan of a file with queues that are denied", out, said, text)
        changes = json.loads(out)["changes"]
        created = {
            change["name"] for change in changes if (change["action"], change["kind"]) == ("create", "queue")
        }
        assert created == denied, ("the plan creates the queues that are missing", created, denied, text)

    def _check_imported(self, vhost: str, text: str, denied: set[str]) -> None:
        code, out, said = self._run("plan", vhost, str(self._path))
        if denied:
            self._check_incomplete(code, out, said, text, denied)
            return
        assert code == 0, ("the plan of an imported file", out, said, text)
        assert not json.loads(out)["changes"]
        code, out, said = self._run("check", vhost, str(self._path))
        assert code in (0, 1), (said, text)
        nothing, rings, _ = self._run("check", vhost)
        by_itself = [] if nothing == 2 else json.loads(rings)["findings"]  # 2: no exchange hashes
        found = [
            finding
            for finding in json.loads(out)["findings"]
            if finding["kind"] in _DIFFERENCES and finding not in by_itself
        ]
        assert not found, ("the check of an imported file", found, text)

    def _check_export(self, vhost: str, text: str) -> None:
        code, out, said = self._run("export", vhost, output="text")
        self.seen[f"export {code}"] += 1
        assert code == 0 or (code == 3 and said), (said, text)
        self._path.write_text(out)
        code, planned, said = self._run("plan", vhost, str(self._path))
        assert code == 0 or "is empty" in said, ("the plan of an export", planned, said, out, text)

    def _run(
        self,
        command: str,
        vhost: str,
        *arguments: str,
        output: str = "json",
        live: bool = True,
    ) -> tuple[int, str, str]:
        broker = self._broker
        options = ["--url", broker.url, "--management-url", str(broker.management_url)] if live else []
        options += ["--ring-via", " ".join(quick_prefix(broker))] if live else []
        code = main(
            [
                command,
                *options,
                "--vhost",
                vhost,
                *arguments,
                *(["--output", output] if output != "text" else []),
            ]
        )
        found = self._capsys.readouterr()
        return code, found.out, found.err


@pytest.fixture
def site(rabbit: Rabbit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    return Site(rabbit.broker, tmp_path / "definitions.json", capsys)


def test_files_are_read_as_the_broker_imports_them(rabbit: Rabbit, site: Site) -> None:
    is_old = rabbit.release.numbers < (4,)
    if rabbit.release.version not in ("3.10.8", "4.3.6"):
        pytest.skip("two releases have the importers of all")

    @settings(
        max_examples=_FILES // 3 if is_old else _FILES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        definitions(is_old=is_old), st.sampled_from((None, None, None if is_old else "quorum")), st.booleans()
    )
    def try_file(content: dict[str, Any], default_type: str | None, is_whole: bool) -> None:  # noqa: FBT001
        site.try_file(content, default_type, is_whole=is_whole)

    attempt: Callable[[], None] = try_file
    attempt()
    rabbit.note(f"definitions files: {dict(site.seen)}, mismatches 0")
