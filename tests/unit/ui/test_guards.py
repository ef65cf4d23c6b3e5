"""What the pages refuse before they look at a request, and the headers of every answer."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from rabbit_chx.ui.app import Guards

HERE = ("localhost", "127.0.0.1", "::1")
TOKEN = "a-token"  # noqa: S105  # of a test


def client(
    hosts: tuple[str, ...] | None = HERE, token: str | None = None, allowed: tuple[str, ...] = ()
) -> TestClient:
    guarded = Guards(PlainTextResponse("shown"), hosts, token, allowed)
    return TestClient(guarded, "http://localhost:8720", follow_redirects=False)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_only_reading_is_a_method(method: str) -> None:
    answer = client().request(method, "/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "host", ["localhost:8720", "LOCALHOST", "localhost.:8720", "127.0.0.1:1", "[::1]:8720"]
)
def test_the_names_of_this_server_are_answered(host: str) -> None:
    assert client().get("/", headers={"Host": host}).text == "shown"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8720", "", "127.0.0.2"])
def test_another_name_is_refused_as_it_may_be_rebound(host: str) -> None:
    assert client().get("/", headers={"Host": host}).status_code == 421


def test_a_server_for_other_machines_has_addresses_and_its_own_name() -> None:
    of_all = client(None)
    assert of_all.get("/", headers={"Host": "192.0.2.1:8720"}).status_code == 200
    assert of_all.get("/", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("hosts", [HERE, None])
def test_the_name_of_a_proxy_is_one_that_is_allowed(hosts: tuple[str, ...] | None) -> None:
    behind = client(hosts, allowed=("Rings.Example.com.", "other.example"))
    for host in ("rings.example.com:443", "rings.example.com.", "other.example."):
        assert behind.get("/", headers={"Host": host}).text == "shown"
    other = behind.get("/", headers={"Host": "other.example.com"})
    assert (other.status_code, "start ui with --allowed-host" in other.text) == (421, True)
    assert behind.get("/", headers={"Host": "localhost"}).text == "shown"


def test_an_open_address_needs_no_token_and_a_name_of_this_server() -> None:
    guarded = Guards(PlainTextResponse("shown"), HERE, TOKEN, open_paths=["/metrics"])
    browser = TestClient(guarded, "http://localhost:8720")
    assert browser.get("/metrics").text == "shown"
    for path in ("/", "/metrics/", "/metricsx", "//metrics"):
        assert browser.get(path).status_code == 403, path
    assert browser.get("/metrics", headers={"Host": "evil.example"}).status_code == 421
    assert browser.post("/metrics").status_code == 405


def test_the_token_becomes_a_cookie_and_leaves_the_address() -> None:
    browser = client(token=TOKEN)
    assert browser.get("/findings").status_code == 403
    wrong = browser.get("/findings", params={"token": "another"})
    assert (wrong.status_code, "the token is wrong" in wrong.text) == (403, True)
    first = browser.get("/findings", params={"token": TOKEN, "kind": "hole"})
    assert (first.status_code, first.headers["location"]) == (303, "/findings?kind=hole")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie, "a link in a mail is of another site"
    assert browser.get("/findings").text == "shown"


@pytest.mark.parametrize("headers", [{}, {"Host": "evil.example"}])
def test_each_answer_says_what_a_page_may_load(headers: dict[str, str]) -> None:
    answer = client().get("/", headers=headers)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'"
    )
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
