"""Each address of the pages, on a broker made of values; tests/broker/test_ui.py opens them in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from exposition import parsed_exposition
from modelled_commands import ModelledCommands
from slot_files import NEWEST
from starlette.testclient import TestClient

from rabbit_chx import Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import main
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.inputs import VariableOptions
from rabbit_chx.errors import UnreachableError
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import ExchangeDefinition
from rabbit_chx.ui.app import Pages

URL = "amqp://guest:canary-password@model"
HOSTILE = "<script>alert(1)</script>"
FILE = f"""
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{{ queue = "q{{1..3}}" }}, {{ queue = "{HOSTILE}" }}]
[[exchanges]]
name = "a/b {HOSTILE}"
type = "x-consistent-hash"
slots = 8
members = [{{ queue = "q{{1..2}}" }}]
[[exchanges]]
name = "bills"
type = "x-modulus-hash"
queues = ["q1", "q2"]
[[queues]]
name = "q{{1..3}}"
[[queues]]
name = "{HOSTILE}"
"""


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelledCommands:
    made = ModelledCommands(tmp_path / "unused.toml", monkeypatch)
    made.holds(Topology.from_toml(FILE))
    return made


@pytest.fixture
def browser(modelled: ModelledCommands, tmp_path: Path) -> TestClient:  # noqa: ARG001  # the broker that it reads
    file = tmp_path / "topology.toml"
    file.write_text(FILE.replace("q{1..3}", "q{2..3}", 1))
    return opened(file)


def opened(file: Path, every_s: float = 60) -> TestClient:
    at = BrokerAddresses(URL, ConnectionSettings.from_uri(URL), "http://model:15672", None)
    pages = Pages(at, str(file), VariableOptions(assigned=()), every_s)
    return TestClient(pages.app(("testserver",), None))


PATHS = [
    "/", "/exchange/orders", "/exchange/a%2Fb%20%3Cscript%3Ealert%281%29%3C%2Fscript%3E", "/exchange/bills",
    "/exchange/orders?key=user-1&key=b&add=q9%3D2&remove=q1", "/exchange/orders?to_release=3.10", "/findings",
    "/findings?kind=hole&exchange=orders&vhost=/", "/consumers", "/plan",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_each_page_is_shown_without_markup_of_others(browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert HOSTILE not in answer.text
    assert "canary-password" not in answer.text
    assert answer.text.count("<script") == 1, "that of the page itself"
    assert " style=" not in answer.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "rings"), ("/exchange/orders", "show"), ("/exchange/orders?key=a", "route"),
        ("/exchange/orders?add=q9%3D2", "compare"), ("/findings", "check"), ("/plan", "plan"),
    ],
)  # fmt: skip
def test_each_page_is_the_document_of_a_command(browser: TestClient, path: str, name: str) -> None:
    answer = browser.get(path, params={"format": "json"} if "?" not in path else None)
    answer = answer if "?" not in path else browser.get(f"{path}&format=json")
    assert answer.json()["format"] == f"rabbit-chx/{name}"


def test_the_key_and_the_question_are_in_the_address(browser: TestClient) -> None:
    routed = browser.get("/exchange/orders?key=user-1&format=json").json()
    shown = browser.get("/exchange/orders?key=user-1").text
    assert routed["answers"][0]["destination"] in shown
    asked = browser.get("/exchange/orders?add=q9%3D2")
    assert "of all keys move" in asked.text
    assert "queue = &#34;q9&#34;, weight = 2" in asked.text


def test_the_plan_names_the_command_that_applies_it(browser: TestClient) -> None:
    assert "of all keys move" in browser.get("/plan").text


def test_a_plan_that_no_option_permits_has_no_command(browser: TestClient, tmp_path: Path) -> None:
    """As the command `plan`: an exclusive queue would end with the command that declares it."""
    file = tmp_path / "topology.toml"
    file.write_text(f'{file.read_text()}[[queues]]\nname = "mine"\nexclusive = true\ndurable = false\n')
    shown = browser.get("/plan").text
    assert "queue mine is exclusive" in shown
    assert "Apply it with" not in shown
    assert browser.get("/plan?format=json").json()["refusals"]


def test_the_pages_have_one_count_of_findings(browser: TestClient, modelled: ModelledCommands) -> None:
    modelled.model.queues.pop("q3")
    findings = browser.get("/findings?format=json").json()["findings"]
    assert findings
    header = f"This broker: {len(findings)} findings</a>"
    assert header in browser.get("/").text
    shown = [
        browser.get(f"/exchange/{quote(name, safe='')}").text
        for name in ("orders", f"a/b {HOSTILE}", "bills")
    ]
    counts = [
        int(found)
        for page in shown
        for found in re.findall(r"<dt>findings</dt><dd>(\d+)", "".join(page.split()))
    ]
    assert all(header in page for page in shown)
    assert sum(counts) == len([finding for finding in findings if finding["exchange"]])
    assert f"<dt>findings</dt><dd>{len(findings)}</dd>" in " ".join(browser.get("/findings").text.split())


def test_one_exchange_opens_at_once(modelled: ModelledCommands, tmp_path: Path) -> None:
    modelled.holds(Topology.from_toml('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = []\n'))
    answer = opened(tmp_path / "none.toml").get("/")
    assert (answer.url.path, "<h1>x</h1>" in answer.text) == ("/exchange/x", True)
    assert opened(tmp_path / "none.toml").get("/?format=json").json()["format"] == "rabbit-chx/rings"


def test_the_page_of_an_exchange_begins_with_what_it_is(browser: TestClient) -> None:
    page = browser.get("/exchange/orders?key=user-1&add=q9%3D2").text
    places = [
        page.index(text)
        for text in ("<h1>orders", "vhost /, read ", "4 members share the keys", '<figure class="strip">', '<ul class="legend">',
                     '<figure class="bars">', "Where does a key go?", "</strong> gets user-1", "What would move?", "of all keys move",
                     "What was checked")
    ]  # fmt: skip
    assert places == sorted(places)


def test_findings_come_first_on_the_page_of_an_exchange(browser: TestClient) -> None:
    page = browser.get(f"/exchange/{quote(f'a/b {HOSTILE}', safe='')}").text
    places = [
        page.index(text)
        for text in ('<a class="bad" href="/findings">', '<a class="bad" href="#findings">', ">Findings</h2>",
                     "<dt>error: ", "All figures", "Where does a key go?", "What was checked")
    ]  # fmt: skip
    assert places == sorted(places)
    assert 'class="good"' not in page


def test_a_page_is_green_only_where_nothing_is_wrong(browser: TestClient) -> None:
    page = browser.get("/exchange/orders").text
    assert '<span class="good">No findings.</span>' in page
    assert ">Findings</h2>" not in page
    assert '<a class="bad" href="/findings">This broker: 2 findings</a>' in page, "of another exchange"


#: What no page says of a ring whose order is not known, or of a broker that does not answer.
CERTAIN = re.compile(
    r'class="good"|No findings|<dd>none<|<figure class="(?:strip|shares|flows|bars)|Apply it with|\brecorded\b'
)


def test_what_is_not_known_is_not_drawn_and_not_green(
    browser: TestClient, modelled: ModelledCommands
) -> None:
    modelled.has_source = False
    home = browser.get("/").text
    assert home.count("an order that is not known") == 1, "the others need no order"
    cards = home.split('<section class="card">')
    assert [card for card in cards if "is not known" in card and CERTAIN.search(card)] == []
    for question in ("", "?key=user-1", "?remove=q1"):
        page = browser.get(f"/exchange/orders{question}").text
        assert CERTAIN.findall(page) == []
        assert "not determined" in page
        document = browser.get(f"/exchange/orders{question or '?'}&format=json").json()
        assert document["determined"] is False
    assert "<strong>not determined" in browser.get("/exchange/orders?key=user-1").text
    answer = browser.get("/exchange/orders?key=user-1&format=json").json()
    assert answer["learn"] == browser.get("/exchange/orders?format=json").json()["learn"] != ""
    appended = browser.get("/exchange/orders?add=q9%3D2").text
    assert "in every order" in appended
    assert "ring = [" not in appended


def test_an_exchange_to_which_nothing_is_bound_says_so_first(
    browser: TestClient, modelled: ModelledCommands
) -> None:
    modelled.has_source = False
    modelled.model.exchanges["other"] = ExchangeDefinition("other", "x-consistent-hash")
    modelled.model.rings["other"] = HashRing.from_buckets((), NEWEST, next_bucket=0)
    page = browser.get("/exchange/other").text
    assert "Nothing is bound, so no member gets a message (routing key)." in page
    assert "in an order" not in page


@pytest.mark.parametrize("path", PATHS)
def test_a_broker_that_is_gone_leaves_nothing_certain(
    modelled: ModelledCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert modelled.has_source
    (tmp_path / "topology.toml").write_text(FILE)
    browser = opened(tmp_path / "topology.toml", every_s=0)
    assert browser.get(path).status_code == 200
    gone = Mock(side_effect=UnreachableError("the broker does not answer"))
    monkeypatch.setattr(BrokerAddresses, "management", gone)
    monkeypatch.setattr("rabbit_chx.broker.facade._Connected", gone)
    browser.get(path)  # a reading that ends in the error
    answer = browser.get(path)
    assert (answer.status_code, "the broker does not answer" in answer.text) == (503, True)
    assert "s ago" in answer.text
    assert ">orders (vhost /)<" in answer.text, "the names that were there"
    assert CERTAIN.findall(answer.text) == []
    document = browser.get(f"{path}{'&' if '?' in path else '?'}format=json")
    assert (document.status_code, document.json().keys()) == (503, {"error"})


def exposed(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the values of each metric, but for the time, by the labels that do not name the address or what was asked."""
    return {
        name: {
            frozenset(label for label in labels if label[0] not in ("broker", "asked")): value
            for labels, value in family.values.items()
        }
        for name, family in parsed_exposition(text).items()
        if name != "rabbit_chx_check_timestamp_seconds"
    }


def test_the_metrics_are_those_of_check(
    browser: TestClient, modelled: ModelledCommands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "topology.toml")
    main(modelled.of_broker("check", file, "-o", "prometheus"))
    of_check = exposed(capsys.readouterr().out)
    answer = browser.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert exposed(answer.text) == of_check
    assert of_check["rabbit_chx_misplaced_share_ratio"]


def test_the_metrics_have_the_exchanges_that_the_file_does_not_contain(
    browser: TestClient, modelled: ModelledCommands
) -> None:
    """The pages show their findings, and an alert fires for them."""
    modelled.model.exchanges["other"] = ExchangeDefinition("other", "x-consistent-hash")
    modelled.model.rings["other"] = HashRing.from_buckets((), NEWEST, next_bucket=0)
    shown = browser.get("/findings?format=json").json()["findings"]
    metrics = exposed(browser.get("/metrics").text)
    of_other = {
        labels: value
        for labels, value in metrics["rabbit_chx_check_findings"].items()
        if ("exchange", "other") in labels
    }
    assert sum(of_other.values()) == len([one for one in shown if one["exchange"] == "other"]) == 2
    unroutable = metrics["rabbit_chx_unroutable_share_ratio"]
    assert [value for labels, value in unroutable.items() if ("exchange", "other") in labels] == [1.0]


def test_the_metrics_of_a_broker_that_is_gone_are_a_failed_check(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Mock(side_effect=UnreachableError("the broker does not answer"))
    monkeypatch.setattr(BrokerAddresses, "management", gone)
    monkeypatch.setattr("rabbit_chx.broker.facade._Connected", gone)
    answer = browser.get("/metrics")
    assert (answer.status_code, [*exposed(answer.text)]) == (200, ["rabbit_chx_check_success"])
    assert [*exposed(answer.text)["rabbit_chx_check_success"].values()] == [0]
    assert "the broker does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nix", 404, "there is no page"),
        ("/exchange/none", 404, "there is no exchange"),
        ("/exchange/orders?vhost=other", 404, "no exchange hashes in vhost"),
        ("/exchange/amq.topic", 400, "is of type topic, not x-consistent-hash"),
        ("/exchange/orders?remove=zz", 400, "zz does not have a bucket"),
        ("/exchange/orders?add=q9", 400, "lacks a weight"),
        ("/exchange/orders?to_release=nine", 400, "nine"),
        ("/consumers?exchange=none", 404, "there is no exchange"),
        (f"/exchange/orders?{'key=a&' * 101}", 400, "at most 100"),
        ("/static/nix.css", 404, "there is no page"),
    ],
)
def test_bad_input_is_one_sentence_on_the_page(
    browser: TestClient, path: str, status: int, says: str
) -> None:
    answer = browser.get(path)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert "Traceback" not in answer.text
    other = f"{path}{'&' if '?' in path else '?'}format=json"
    assert browser.get(other).json().keys() == {"error"}


def test_a_fault_of_ours_is_a_sentence_without_values(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server would log the traceback of what a page raises, with its values."""
    monkeypatch.setattr("rabbit_chx.ui.app.index_page", Mock(side_effect=ValueError("canary-password")))
    answer = browser.get("/")
    assert (answer.status_code, "this is a bug in rabbit-chx" in answer.text) == (500, True)
    said = capsys.readouterr().err
    assert "this is a bug in rabbit-chx, please report it: ValueError in rabbit_chx.ui.app:" in said
    assert "canary-password" not in said + answer.text


def test_a_file_with_mistakes_is_a_sentence(browser: TestClient, tmp_path: Path) -> None:
    (tmp_path / "topology.toml").write_text("nothing = 1")
    answer = browser.get("/plan")
    assert (answer.status_code, "nothing" in answer.text) == (400, True)


@pytest.mark.parametrize("name", ["style.css", "ui.css", "refresh.js"])
def test_what_a_page_loads_is_here(browser: TestClient, name: str) -> None:
    answer = browser.get(f"/static/{name}")
    assert answer.status_code == 200
    assert f"/static/{name}" in browser.get("/").text
