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


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("ring", "show", "gone"), 2, "there is no exchange 'gone'"),
        (("ring", "check", "order"), 2, "there is no exchange 'order': did you mean orders?"),
        (("verify", "order"), 2, "did you mean orders?"),
        (
            ("verify", "orders", "--management-url", "http://u:c4nary@{amqp}"),
            69,
            "no answer from the HTTP API",  # the broker may reset the connection before its greeting is read
        ),
        (("ring", "show", "orders", "--vhost", "absent"), 2, "the user 'guest' sees no vhost 'absent'"),
        (
            ("verify", "orders", "--url", "amqp://guest:c4nary@127.0.0.1:1/{vhost}"),
            69,
            "no server answers there",
        ),
        (
            ("verify", "orders", "--management-url", "http://u:c4nary@127.0.0.1:1"),
            69,
            "no answer from the HTTP API",
        ),
        (("verify", "orders", "--management-url", "http://guest:c4nary@{where}"), 77, "answered 401"),
        (("verify", "orders", "--ring-via", "false"), 70, "the ring was not read"),
    ],
)
def test_an_error_is_one_line_without_a_password(
    shop: Shop, capsys: pytest.CaptureFixture[str], change: tuple[str, ...], code: int, words: str
) -> None:
    where, name = shop.live[3].rpartition("@")[2], shop.live[1].rpartition("/")[2]
    amqp = shop.live[1].rpartition("@")[2].partition("/")[0]
    given = [
        part.replace("{where}", where).replace("{vhost}", name).replace("{amqp}", amqp) for part in change
    ]
    assert main([*given[:2], *shop.live, *given[2:]]) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert re.fullmatch(rf"rabbit-chx: [^\n]*{re.escape(words)}[^\n]*\n", found.err, re.IGNORECASE)
    assert "c4nary" not in found.err


def test_it_waits_for_a_broker_that_is_starting(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    as_always = main(["verify", "orders", *shop.live])
    assert as_always != 69
    with closing(Proxy(shop.live[1])) as proxy:
        live = ("--url", through(shop.live[1], proxy.port), *shop.live[2:])
        proxy.refuse()
        assert main(["verify", "orders", *live]) == 69
        starts = threading.Timer(1.0, proxy.accept)
        starts.start()
        assert main(["verify", "orders", *live, "--wait", "30"]) == as_always
        starts.join()
        proxy.refuse()
        capsys.readouterr()
        assert main(["verify", "orders", *live, "--wait", "0.7"]) == 69
    assert "(after --wait 0.7)" in capsys.readouterr().err
