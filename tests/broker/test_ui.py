"""`rabbit-chx ui` in a real Chromium, that of the system: what a person sees, with and without a mouse, a script, a broker.

With RABBIT_CHX_PICTURES=FOLDER a picture of each page is written there. The pictures of docs/ui.md and the README are made anew where the
templates have changed since (`support/ui_figures.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import ui_figures
from exchange_types import CHX
from programs import program
from served_pages import served
from shop import Shop
from tcp_proxy import Proxy

from rabbit_chx import Publisher
from rabbit_chx.cli import main

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.broker, pytest.mark.extended, pytest.mark.timeout(300)]

HOSTILE = "<script>document.title='bad'</script>\"'&"
WIDTHS = (380, 1280)
PICTURES = os.environ.get("RABBIT_CHX_PICTURES")
#: What a page may not have, as axe grades it.
_SERIOUS = ("serious", "critical")
FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 10 }, { queue = "q2" }]
[[queues]]
name = "q{1..2}"
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    path = program("chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def address(shop: Shop, tmp_path: Path) -> Iterator[str]:
    """The pages of a vhost with a ring whose slot is an exchange, another one, and traffic of one key."""
    channel = shop.channel
    channel.exchange_declare("plain", CHX, durable=True)
    for queue in ("q1", "q2"):
        channel.queue_bind(queue, "plain", "1")
    with Publisher(shop.broker.url, exchange="plain") as publisher:
        publisher.publish_many(["one-key"] * 200, [b"x"] * 200)
    file = tmp_path / "topology.toml"
    file.write_text(FILE)
    with served(*shop.live, *shop.via, "--file", str(file)) as found:
        yield found


#: The tables and the lines that are cut, and marks that nobody can see on their ground.
CUT = """[...document.querySelectorAll('.wide')].filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)
  .concat([...document.querySelectorAll('.tick')].map((each) => getComputedStyle(each).stroke)
    .filter((ink) => ink === getComputedStyle(document.body).backgroundColor))"""


def through(url: str, proxy: Proxy) -> str:
    """The URL by way of a proxy."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}".removeprefix("@")))


def paths(shop: Shop) -> dict[str, str]:
    vhost = quote(shop.settings.vhost, safe="")
    return {
        "exchanges": "/",
        "exchange": f"/exchange/plain?vhost={vhost}&key=user-1&add=q9%3D2",
        "slots": f"/exchange/orders?vhost={vhost}",
        "findings": "/findings",
        "consumers": "/consumers",
        "plan": "/plan",
    }


def test_each_page_at_each_width_in_light_and_dark(
    chromium: Any, shop: Shop, address: str, tmp_path: Path
) -> None:
    folder = Path(PICTURES or tmp_path)
    for name, path in paths(shop).items():
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                # Only axe needs what the policy of the pages forbids.
                page = chromium.new_page(
                    viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
                )
                problems: list[str] = []
                page.on("pageerror", lambda error, found=problems: found.append(str(error)))
                page.on("console", lambda message, found=problems: found.append(message.text))
                assert page.goto(address + path).status == 200
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                assert page.evaluate(CUT) == [], (name, width)
                found = axe.Axe().run(page).response["violations"]
                assert [
                    (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in _SERIOUS
                ] == []
                assert problems == []
                page.screenshot(path=folder / f"ui-{name}-{width}-{scheme}.png", full_page=True)
                page.close()


def test_the_policy_permits_what_the_pages_load(chromium: Any, shop: Shop, address: str) -> None:
    page = chromium.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    for path in paths(shop).values():
        page.goto(address + path)
        page.wait_for_timeout(1500)  # one refresh
    assert refused == []
    page.close()


def test_names_are_no_markup(chromium: Any, shop: Shop) -> None:
    shop.channel.exchange_declare(HOSTILE, CHX, durable=True)
    shop.channel.queue_declare(HOSTILE, durable=True)
    shop.channel.queue_bind(HOSTILE, HOSTILE, "1")
    with served(*shop.live, *shop.via) as address:
        page = chromium.new_page()
        page.goto(address)
        page.click("a:has-text('<script>')")
        page.wait_for_load_state()
        assert page.inner_text("h1") == HOSTILE
        assert page.title().startswith(HOSTILE)
        page.close()


def test_the_keyboard_is_enough(chromium: Any, shop: Shop, address: str) -> None:
    page = chromium.new_page()
    page.goto(address + paths(shop)["exchange"].partition("&key")[0])
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "key":
            break
    page.keyboard.type("user-7")
    page.keyboard.press("Enter")
    page.wait_for_url("**key=user-7**")
    assert "gets user-7" in page.inner_text("main")
    assert "phash2" not in page.inner_text("main"), "folded"
    page.press("#routed summary", "Enter")
    assert "phash2" in page.inner_text("main")
    page.close()


def test_no_page_needs_a_script(chromium: Any, shop: Shop, address: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    for path in paths(shop).values():
        page.goto(address + path)
        assert len(page.inner_text("main")) > 40
    page.goto(address + paths(shop)["exchange"].partition("&key")[0])
    page.fill("input[name=add]", "q9=2")
    page.click("button:has-text('What would move?')")
    assert "of all keys move" in page.inner_text("main")
    context.close()


def test_an_open_page_follows_the_broker_and_keeps_what_is_typed(
    chromium: Any, shop: Shop, address: str
) -> None:
    page = chromium.new_page()
    page.goto(address + paths(shop)["exchange"].partition("&key")[0])
    page.fill("input[name=key]", "half-typed")
    shop.channel.queue_declare("q-new", durable=True)
    shop.channel.queue_bind("q-new", "plain", "1")
    page.wait_for_selector("#report .shares:has-text('q-new')", timeout=30_000)
    assert page.input_value("input[name=key]") == "half-typed"
    page.close()


def test_a_broker_that_dies_and_comes_back(chromium: Any, shop: Shop) -> None:
    """The addresses are cut, as if the broker were gone."""
    management = str(shop.broker.management_url)
    with closing(Proxy(shop.broker.url)) as amqp, closing(Proxy(management)) as http:
        live = ("--url", through(shop.broker.url, amqp), "--management-url", through(management, http))
        with served(*live, *shop.via) as address:
            page = chromium.new_page()
            page.goto(address)
            page.wait_for_selector("text=orders")
            amqp.refuse()
            http.refuse()
            page.wait_for_selector(".problem", timeout=60_000)
            for _ in range(2):
                shown = page.inner_text("main")
                assert "s ago" in shown
                assert "orders" in shown, "what was there"
                assert page.locator("figure, .good").count() == 0, "what was true then"
                page.reload()
            amqp.accept()
            http.accept()
            page.wait_for_selector(".problem", state="detached", timeout=60_000)
            assert page.locator("figure").count()
            page.close()


def test_two_hundred_exchanges_and_a_thousand_members(chromium: Any, shop: Shop) -> None:
    channel = shop.channel
    for number in range(200):
        channel.exchange_declare(f"x.{number:03}", CHX, durable=True)
        channel.queue_bind("q1", f"x.{number:03}", "1")
    channel.exchange_declare("large", CHX, durable=True)
    for number in range(1000):
        channel.queue_declare(f"m.{number:04}", durable=True)
        channel.queue_bind(f"m.{number:04}", "large", "1")
    vhost = paths(shop)["exchange"].partition("vhost=")[2].partition("&")[0]
    with served(*shop.live, *shop.via) as address:
        page = chromium.new_page(viewport={"width": 380, "height": 800})
        page.goto(address, timeout=60_000)
        assert page.locator(".card").count() == 202
        began = time.monotonic()
        page.goto(f"{address}/exchange/large?vhost={vhost}", timeout=60_000)
        assert page.locator("#report tbody tr").count() >= 1000
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        assert time.monotonic() - began < 60
        page.close()


def test_the_figures_of_the_pages_are_those_of_these_templates(chromium: Any, shop: Shop) -> None:
    """A ring of twelve queues with consumers, and a key that has a third of the traffic."""
    if ui_figures.are_new():
        return
    channel, vhost = shop.channel, quote(shop.settings.vhost, safe="")
    channel.exchange_declare("billing.events", CHX, durable=True)
    channel.basic_qos(prefetch_count=1)
    for city in ["ams", "bcn", "cph", "dub", "fra", "hel", "lis", "mad", "nce", "osl", "vie", "zrh"]:
        channel.queue_declare(f"billing.{city}", durable=True)
        channel.queue_bind(f"billing.{city}", "billing.events", "10")
        channel.basic_consume(f"billing.{city}", lambda *_: None)
    assert main(["record", "billing.events", *shop.live, *shop.via]) == 0
    address_of = f"/exchange/billing.events?vhost={vhost}&key=customer-7&add=billing.par%3D10"
    with served(*shop.live) as address, Publisher(shop.broker.url, "billing.events") as publisher:
        page = chromium.new_page(viewport={"width": 900, "height": 800})
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and "more than its share" not in page.inner_text("body"):
            keys = [f"customer-{number % 3000}" if number % 3 else "customer-42" for number in range(3000)]
            publisher.publish_many(keys, [b"x"] * len(keys))
            page.goto(address + address_of)
        page.evaluate("document.getElementById('state').remove()")
        ui_figures.make(page)
        page.close()
    assert ui_figures.are_new()
