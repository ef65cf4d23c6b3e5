"""The program that serves the pages: its address, its token and its names. No broker is needed."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

TOKEN = "stays-the-same"  # noqa: S105  # of a test
NOBODY = {"AMQP_URL": "amqp://127.0.0.1:1", "RABBIT_CHX_MANAGEMENT_URL": "http://127.0.0.1:1"}


def status(port: int, host: str, **cookie: str) -> tuple[int, str]:
    """Open the pages by the name of a host, with a cookie or with the token; return the status and the new cookie."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/" if cookie else f"/?token={TOKEN}", headers={"Host": host, **cookie})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]


def test_a_given_token_and_the_name_of_a_proxy_open_the_pages() -> None:
    command = ["ui", "--host", "0.0.0.0", "--port", "0", "--no-browser", "--allowed-host", "rings.example"]  # noqa: S104
    with subprocess.Popen(
        [sys.executable, "-m", "rabbit_chx", *command],
        env={**os.environ, **NOBODY, "RABBIT_CHX_UI_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().strip())
            assert parse_qs(address.query) == {"token": [TOKEN]}
            port = address.port or 0
            opened, cookie = status(port, "rings.example")
            assert opened == 303
            assert status(port, "rings.example", Cookie=cookie)[0] == 503, (
                "the page says that no broker answers"
            )
            assert status(port, "other.example", Cookie=cookie)[0] == 421
            assert status(port, "rings.example", Cookie="none")[0] == 403
        finally:
            process.terminate()
