"""Options that name a broker, and what is said where one is missing or wrong."""

from __future__ import annotations

import re
import threading
from contextlib import closing

import pytest
from publishing_support import through
from shop import Shop
from tcp_proxy import Proxy

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker


def test_an_error_is_one_line_without_a_password(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    api, amqp = (shop.live[at].rpartition("@")[2].partition("/")[0] for at in (3, 1))
    for change, code, words in (
        (("ring", "show", "gone"), 2, "there is no exchange 'gone'"),
        (("ring", "check", "order"), 2, "there is no exchange 'order': did you mean orders?"),
        (("ring", "show", "orders", "--vhost", "absent"), 2, "the user 'guest' sees no vhost 'absent'"),
        # The broker may reset the connection before its greeting is read.
        (("verify", "orders", "--management-url", f"http://u:c4nary@{amqp}"), 69, "no answer from the HTTP API"),
        (("verify", "orders", "--management-url", f"http://guest:c4nary@{api}"), 77, "answered 401"),
    ):  # fmt: skip
        assert main([*change[:2], *shop.live, *change[2:]]) == code
        found = capsys.readouterr()
        assert found.out == ""
        assert re.fullmatch(rf"rabbit-chx: [^\n]*{re.escape(words)}[^\n]*\n", found.err, re.IGNORECASE)
        assert "c4nary" not in found.err


def test_it_waits_for_a_broker_that_is_starting(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Proxy(shop.live[1])) as proxy:
        command = ["verify", "orders", "--url", through(shop.live[1], proxy.port), *shop.live[2:], *shop.via]
        proxy.refuse()
        assert main([*command, "--wait", "0.7"]) == 69
        assert "(after --wait 0.7)" in capsys.readouterr().err
        starts = threading.Timer(1.0, proxy.accept)
        starts.start()
        assert main([*command, "--wait", "30"]) == 0
        starts.join()
