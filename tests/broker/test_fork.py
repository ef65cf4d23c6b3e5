"""A process that forks while a publisher or a broker is open: the child is refused, and the parent keeps its connection.

The unit tests of publishers, readers and groups have the other clients.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
from publishing_support import Consumed

from rabbit_chx import Broker
from rabbit_chx.errors import InputError

pytestmark = pytest.mark.broker

FORKING = """
import os, sys
from rabbit_chx import Publisher
from rabbit_chx.errors import InputError

with Publisher(sys.argv[1], "x") as publisher:
    publisher.publish_many(["k"], ["before the fork"])
    if os.fork():
        os.wait()
        print(publisher.publish_many(["k"], ["after the fork"]).reconnects)
    else:
        try:
            publisher.publish_many(["k"], ["in the child"])
        except InputError as error:
            print(error, flush=True)
"""


def test_a_child_sends_no_row_of_a_publisher(vhost_url: str, consumed: Consumed) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, vhost_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused, reconnects = done.stdout.splitlines()
    assert refused.startswith("the Publisher of exchange 'x' was opened by process")
    assert reconnects == "0"
    assert [message.body for message in consumed()] == [b"before the fork", b"after the fork"]


def test_a_child_does_not_use_or_close_a_broker(live: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    child = copy.copy(live)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(InputError, match=r"the Broker of .* was opened by process .* after the fork"):
            child.declare("y", {})
        child.close()
    assert live.declare("y", {"q": 1}).bound
