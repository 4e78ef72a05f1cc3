"""The console in a browser, against brokers that are really used."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from tests.admin.asking import post, queue, read
from tests.admin.conftest import PLACES, Start
from tests.admin.test_views import request, send
from tests.conftest import Serve, Served
from tests.console.conftest import Open
from tests.system.plain import Plain
from tests.users import users

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

ANSWERED = "Failed to load resource: the server responded with a status of"
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
USERS = """
[[permission]]
match = "#"
manage = ["admins"]
send = ["admins"]
create-address = ["admins"]
create-durable-queue = ["admins"]
[[permission]]
match = "open.#"
browse = ["users"]
manage = ["admins"]
send = ["admins"]
create-address = ["admins"]
create-durable-queue = ["admins"]
""" + users("root:r00t@admins", "bob:b0b@users")


def look_again(page: Page) -> None:
    """At once, not in two seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def row(page: Page, name: str) -> Locator:
    """The row of a table whose first cell is this."""
    return page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))


def cell(page: Page, name: str, column: str) -> Locator:
    """The cell of a row under a column's head."""
    heads = page.get_by_role("columnheader")
    expect(heads.filter(has_text=re.compile(rf"^{re.escape(column)}\W*$")).first).to_be_visible()
    at = [re.sub(r"\W+$", "", text) for text in heads.all_inner_texts()].index(column)
    return row(page, name).get_by_role("cell").nth(at)


def card(page: Page, name: str) -> Locator:
    return page.locator(".card").filter(has=page.get_by_text(name, exact=True))


def say(client: Plain, pipeline: str, **step: object) -> None:
    body = json.dumps({"pipeline": pipeline, "steps": [step]}).encode()
    assert request(client, "progress", body) == {}


# --- what is shown ------------------------------------------------------------------------------------------------------------


def test_the_overview_counts_while_it_is_looked_at(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/live", b"1")
        page = visit(served.admin)
        expect(page.locator("#state")).to_have_text("ready")
        before = read(served.admin, "status")["messages"]["received"]
        expect(card(page, "Messages in/s")).to_contain_text(f"{before:,} since the start")
        send(client, "/queue/live", *[b"x"] * 50)
        expect(card(page, "Messages in/s")).to_contain_text(f"{before + 50:,} since the start")
        rate = card(page, "Messages in/s").get_by_role("definition").first
        expect(rate).to_have_text(re.compile(r"^[\d.,]+$"))
        expect(card(page, "Connections")).to_contain_text("1")
        expect(card(page, "Disk free")).to_contain_text("GiB")
        expect(page.get_by_role("img", name=re.compile("Messages per second: .* in, .* out"))).to_be_visible()
        expect(page.locator(".facts")).to_contain_text(str(served.process.pid))


def test_an_address_and_its_queues(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/shown", b"1", b"2", b"3")
        page = visit(served.admin, "addresses")
        expect(cell(page, "shown", "Ready")).to_have_text("3")
        client.send(
            "SUBSCRIBE", {"destination": "/queue/shown", "id": "1", "ack": "client", "prefetch-count": "2"}
        )
        client.receive(), client.receive()
        look_again(page)
        expect(cell(page, "shown", "Ready")).to_have_text("1")
        expect(cell(page, "shown", "In delivery")).to_have_text("2")
        expect(cell(page, "shown", "Consumers")).to_have_text("1")
        page.get_by_role("link", name="shown", exact=True).click()
        expect(page.get_by_role("heading", name="shown")).to_be_visible()
        expect(cell(page, "shown", "Kind")).to_have_text("anycast")
        expect(page.locator(".facts")).to_contain_text("Sent in all")


def test_connections_and_the_subscriptions_of_one(served: Served, visit: Open) -> None:
    with Plain(served.port, "1.1", {"client-id": "browsed", "login": "somebody"}) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/of.browsed", "id": "s1", "selector": "a > 1"})
        client.sync()
        page = visit(served.admin, "connections")
        page.get_by_role("searchbox").fill("browsed")
        expect(page.locator("tbody tr")).to_have_count(1)
        port = client.socket.getsockname()[1]
        expect(page.locator("tbody tr")).to_contain_text(f"somebody127.0.0.1:{port}browsed1.1")
        page.locator("tbody a").click()
        expect(row(page, "s1")).to_contain_text("/queue/of.browsedautoa > 1")


def test_the_lag_of_a_reader_group_moves(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/lagging", b"1", b"2", b"3")
        request(client, "group-open", group="lake", destinations="/queue/lagging", starting="earliest")
        page = visit(served.admin, "groups")
        expect(cell(page, "lake", "Lag")).to_have_text("3")
        expect(cell(page, "lake", "Last moved")).to_have_text("not since the start")
        request(client, "group-commit", b'{"lagging": 2}', group="lake")
        expect(cell(page, "lake", "Lag")).to_have_text("1")
        expect(cell(page, "lake", "Position")).to_have_text("2")
        expect(cell(page, "lake", "Last moved")).to_have_text(re.compile(r"s ago$"))
        send(client, "/queue/lagging", b"4", b"5")
        look_again(page)
        expect(cell(page, "lake", "Lag")).to_have_text("3")
        expect(cell(page, "lake", "End")).to_have_text("5")


def test_a_reader_group_is_put_elsewhere_and_deleted(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/regrouped", b"1", b"2", b"3")
        request(client, "group-open", group="pond", destinations="/queue/regrouped", starting="latest")
        page = visit(served.admin, "groups")
        page.get_by_placeholder("Filter by group or address").fill("pond")
        expect(cell(page, "pond", "Position")).to_have_text("3")
        row(page, "pond").get_by_role("button", name="Reset…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("is 3 of 3")
        dialog.get_by_role("textbox").fill("1")
        dialog.get_by_role("button", name="Reset").click()
        expect(cell(page, "pond", "Position")).to_have_text("1")
        row(page, "pond").get_by_role("button", name="Delete…").click()
        expect(dialog).to_contain_text("loses its positions")
        page.keyboard.press("Escape")
        expect(cell(page, "pond", "Position")).to_have_text("1")
        row(page, "pond").get_by_role("button", name="Delete…").click()
        page.get_by_role("button", name="Delete the group").click()
        expect(page.get_by_role("status").filter(has_text="Reader group pond is deleted")).to_be_visible()


def test_the_progress_of_a_pipeline(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        say(
            client,
            "nightly",
            step="orders",
            kind="archive",
            state="running",
            rows=1200,
            rate=400.0,
            lag=3,
            batch=1,
            batch_ago=0,
        )
        page = visit(served.admin, "pipelines")
        expect(cell(page, "nightly", "State")).to_have_text("running")
        expect(cell(page, "nightly", "Rows")).to_have_text("1,200")
        say(
            client,
            "nightly",
            step="orders",
            kind="archive",
            state="failed",
            rows=1500,
            reason="the disk is full",
        )
        look_again(page)
        expect(cell(page, "nightly", "Rows")).to_have_text("1,500")
        expect(cell(page, "nightly", "Step")).to_contain_text("the disk is full")
        say(client, "nightly", step="orders", kind="archive", state="running")
    look_again(page)
    expect(cell(page, "nightly", "State")).to_have_text("lost")


def test_a_hostile_name_is_only_text(served: Served, visit: Open) -> None:
    with Plain(served.port, headers={"client-id": HOSTILE, "login": HOSTILE}) as client:
        send(client, f"/queue/{HOSTILE}", b"1")
        request(client, "group-open", group=HOSTILE, destinations=f"/queue/{HOSTILE}", starting="earliest")
        say(client, HOSTILE, step=HOSTILE, kind=HOSTILE, state="failed", reason=HOSTILE)
        page = visit(served.admin, "addresses")
        page.get_by_role("link", name=HOSTILE).click()
        expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
        page.get_by_role("button", name="Purge…").click()
        expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
        page.get_by_role("button", name="Cancel").click()
        for section in ("groups", "pipelines", "connections"):
            page.goto(f"{served.admin}/#{section}")
            expect(page.locator("tbody").get_by_text(HOSTILE, exact=True).first).to_be_visible()
            assert page.locator("main img").count() == 0
        expect(page).to_have_title("Connections · Stompbox")


def test_ten_thousand_addresses_stay_usable(start: Start, visit: Open) -> None:
    served = start("")
    with Plain(served.port) as client:
        for number in range(10_000):
            client.send("SEND", {"destination": f"/queue/many.{number:05}"}, b"x")
        for _ in range(3):
            client.send("SEND", {"destination": "/queue/many.07777"}, b"x")
        client.sync()
        page = visit(served.admin, "addresses")
        expect(page.locator("tbody tr")).to_have_count(100)
        expect(page.locator(".pages")).to_contain_text("1 to 100 of 10,00")
        page.get_by_role("button", name="Next").click()
        expect(row(page, "many.00150")).to_be_visible()
        page.get_by_role("button", name="Ready").click()
        expect(page.locator("tbody tr").first).to_contain_text("many.07777")
        expect(page.get_by_role("columnheader", name="Ready")).to_have_attribute("aria-sort", "descending")
        page.get_by_role("searchbox").fill("many.0999")
        expect(page.locator("tbody tr")).to_have_count(10)
        page.get_by_role("searchbox").fill("nothing like it")
        expect(page.locator("main")).to_contain_text("Nothing here holds “nothing like it”.")


def test_both_themes(served: Served, visit: Open) -> None:
    pages = [visit(served.admin, color_scheme=scheme) for scheme in ("light", "dark")]
    assert len({page.evaluate("getComputedStyle(document.body).backgroundColor") for page in pages}) == 2


# --- what is done -------------------------------------------------------------------------------------------------------------


def test_purge_asks_first_and_says_what_is_lost(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/purged", b"1", b"2", b"3")
        client.send(
            "SUBSCRIBE", {"destination": "/queue/purged", "id": "1", "ack": "client", "prefetch-count": "1"}
        )
        client.receive()
        page = visit(served.admin, "addresses/purged")
        page.get_by_role("button", name="Purge…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("2 now")
        expect(dialog).to_contain_text("They cannot be brought back. The 1 message in delivery stay")
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        assert queue(served.admin, "purged")["ready"] == 2
        page.get_by_role("button", name="Purge…").click()
        page.get_by_role("button", name="Drop 2 messages").click()
        expect(page.get_by_role("status").filter(has_text="2 messages dropped from purged")).to_be_visible()
        expect(cell(page, "purged", "Ready")).to_have_text("0")
        assert queue(served.admin, "purged")["ready"] == 0


def test_looking_into_a_queue_takes_nothing(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/looked.into", b"first", HOSTILE.encode(), mark=HOSTILE)
        send(client, "/queue/looked.into", bytes(range(128, 256)))
    page = visit(served.admin, "addresses/looked.into")
    page.get_by_role("row").get_by_role("link", name="looked.into").click()
    expect(page.locator(".messages")).to_contain_text("3 messages, offsets 0 to 2")
    expect(row(page, "0")).to_contain_text("first")
    expect(row(page, "2")).to_contain_text("no text, or large")
    row(page, "1").get_by_role("button", name="Show…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text(HOSTILE)
    expect(dialog.get_by_role("definition").get_by_text(HOSTILE).first).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    assert queue(served.admin, "looked.into")["ready"] == 3


def test_move_says_what_was_wrong_and_then_moves(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/moved.from", b"1", b"2", b"3")
    page = visit(served.admin, "addresses/moved.from", may_say=(f"{ANSWERED} 400",))
    page.get_by_role("button", name="Move…").click()
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("(bad-destination)")
    page.get_by_label("To the address").fill("moved.to")
    page.get_by_label("How many at most").fill("2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(cell(page, "moved.from", "Ready")).to_have_text("1")
    assert queue(served.admin, "moved.to")["ready"] == 2


def test_pause_and_block_and_back(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/held", b"1")
    page = visit(served.admin, "addresses/held")
    for name, verb, mark, back in (
        ("Pause…", "Pause", "paused", "Resume"),
        ("Block…", "Block", "blocked", "Unblock"),
    ):
        head = page.locator(".head")
        head.get_by_role("button", name=name).click()
        page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("heading", level=1)).to_contain_text(mark)
        [found] = read(served.admin, "addresses?match=held")["addresses"]
        assert found[f"is_{mark}"]
        head.get_by_role("button", name=back, exact=True).click()
        expect(page.get_by_role("heading", level=1)).not_to_contain_text(mark)


def test_a_connection_can_be_closed(served: Served, visit: Open) -> None:
    with Plain(served.port, headers={"client-id": "to-be-closed"}) as client:
        [one] = read(served.admin, "connections?match=to-be-closed")["connections"]
        page = visit(served.admin, f"connections/{one['id']}")
        page.get_by_role("button", name="Close…").click()
        page.get_by_role("button", name="Close it").click()
        expect(page.locator("main")).to_contain_text("is not there, or not any more (no-such-connection)")
        assert client.receive().headers["code"] == "closed-by-operator"


def test_the_keyboard_alone_is_enough(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/keyed", b"1")
        page = visit(served.admin)
        expect(page.locator("#state")).to_have_text("ready")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="Addresses", exact=True)).to_have_attribute(
            "aria-current", "page"
        )
        expect(page.locator("main")).to_be_focused()
        expect(row(page, "keyed")).to_be_visible()
        page.keyboard.press("Tab")
        page.keyboard.type("keyed")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="keyed").focus()
        for _ in range(2):
            look_again(page)
            send(client, "/queue/keyed", b"1")
        expect(cell(page, "keyed", "Ready")).to_have_text("3")
        expect(page.get_by_role("link", name="keyed")).to_be_focused()


# --- when it is not plain sailing ---------------------------------------------------------------------------------------------


def test_a_broker_that_goes_away_and_comes_back(serve: Serve, visit: Open) -> None:
    first = serve("--data", "data", *PLACES)
    with Plain(first.port) as client:
        send(client, "/queue/kept", b"1", b"2")
    page = visit(first.admin, "addresses", may_say=("Failed to load resource: net::ERR_",))
    expect(cell(page, "kept", "Ready")).to_have_text("2")
    assert first.stop() == 0
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("The broker has not answered since")
    expect(page.locator("#state")).to_have_text("away")
    expect(cell(page, "kept", "Ready")).to_have_text("2")
    second = serve("--data", "data", "--listen", "tcp://127.0.0.1:0", "--admin", urlsplit(first.admin).netloc)
    expect(notice).to_be_hidden()
    expect(page.locator("#state")).to_have_text("ready")
    with Plain(second.port) as client:
        send(client, "/queue/kept", b"3")
    # those from before are on the disk and not looked at
    expect(cell(page, "kept", "Ready")).to_have_text("≈ 3")


def test_it_rests_while_nobody_looks(served: Served, visit: Open) -> None:
    page = visit(served.admin, "addresses")
    expect(page.locator("#state")).to_have_text("ready")
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    look_again(page)
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_response("**/api/v1/addresses*"):
        page.evaluate("Object.defineProperty(document, 'hidden', { value: false, configurable: true })")
        look_again(page)


def log_in(page: Page, login: str, passcode: str) -> None:
    page.get_by_label("Login").fill(login)
    page.get_by_label("Passcode").fill(passcode)
    page.get_by_role("button", name="Log in").click()


def test_a_user_logs_in_and_out(start: Start, visit: Open) -> None:
    served = start(USERS)
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        send(client, "/queue/open.q", b"1", b"2")
        send(client, "/queue/closed.q", b"1")
        page = visit(served.admin, "addresses", may_say=(f"{ANSWERED} 401",))
        log_in(page, "root", "wrong")
        expect(page.get_by_role("alert")).to_contain_text("(login-failed)")
        log_in(page, "root", "r00t")
        expect(page.locator("#state")).to_have_text("ready")
        page.goto(f"{served.admin}/#addresses")
        expect(cell(page, "open.q", "Ready")).to_have_text("2")
        expect(row(page, "closed.q")).to_be_visible()
        page.goto(f"{served.admin}/#addresses/open.q")
        page.get_by_role("button", name="Purge…").click()
        page.get_by_role("button", name="Drop 2 messages").click()
        expect(page.get_by_role("status").filter(has_text="2 messages dropped from open.q")).to_be_visible()
        page.get_by_role("button", name="Log out root").click()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
        page.goto(f"{served.admin}/")
        expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_user_sees_what_he_may_and_is_told_what_he_may_not(start: Start, visit: Open) -> None:
    served = start(USERS)
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        send(client, "/queue/open.q", b"1")
        send(client, "/queue/closed.q", b"1")
        refused = f"{ANSWERED} 403"
        page = visit(served.admin, "", may_say=(refused,))
        log_in(page, "bob", "b0b")
        expect(page.locator("#state")).to_have_text("ready")
        expect(page.locator("main")).to_contain_text(
            "does not have the right 'manage' on address 'stompbox.admin' (not-permitted)"
        )
        page.get_by_role("link", name="Addresses").click()
        expect(row(page, "open.q")).to_be_visible()
        expect(row(page, "closed.q")).to_have_count(0)
        page.get_by_role("link", name="open.q").click()
        page.get_by_role("button", name="Purge…").click()
        page.get_by_role("button", name="Drop 1 message").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("(not-permitted)")
        assert queue(served.admin, "open.q", "root:r00t")["ready"] == 1


def test_without_a_login_there_is_nothing_but_the_page_to_log_in(start: Start, browser: Any) -> None:
    served = start(USERS)
    page = browser.new_context().new_page()
    page.goto(served.admin)
    assert page.url.startswith(f"{served.admin}/login")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    expect(page.locator("#state")).to_have_count(0)
    page.context.close()


# --- what others cannot do ----------------------------------------------------------------------------------------------------


def test_the_page_refuses_markup_code_and_other_hosts(served: Served, visit: Open) -> None:
    complaints = (
        "Connecting to",
        "Evaluating a string",
        "This document requires",
        "Refused to",
        "Fetch API cannot load",
    )
    page = visit(served.admin, may_say=complaints)
    expect(page.locator("#state")).to_have_text("ready")
    for code in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.write('x')",
        "eval('1')",
        "new Function('return 1')",
    ):
        # later: what playwright itself runs may do it
        tried = f"try {{ {code}; done('done') }} catch (error) {{ done(error.name) }}"
        done = page.evaluate(f"() => new Promise((done) => setTimeout(() => {{ {tried} }}))")
        assert done in ("TypeError", "EvalError"), code
    assert (
        page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'done', error => error.name)") == "TypeError"
    )


def test_a_page_of_another_site_cannot_purge(served: Served, browser: Any) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/safe", b"1")
    page = browser.new_context().new_page()
    page.route(
        "http://elsewhere.test/",
        lambda route: route.fulfill(body="<h1>free phones</h1>", content_type="text/html"),
    )
    page.goto("http://elsewhere.test/")
    target = json.dumps(f"{served.admin}/api/v1/queues/purge")
    for given in ("headers: { 'content-type': 'application/json' }", "mode: 'no-cors'"):
        options = f"method: 'POST', credentials: 'include', body: '{{\"queue\": \"safe\"}}', {given}"
        page.evaluate(f"fetch({target}, {{ {options} }}).catch(() => 0)")
    assert queue(served.admin, "safe")["ready"] == 1
    page.context.close()


def test_links_into_the_console_find_their_place(served: Served, visit: Open) -> None:
    name = "a/b c?d#e%2F"
    with Plain(served.port) as client:
        send(client, f"/queue/{name}", b"1")
    page = visit(served.admin, f"addresses/{quote(name, safe='')}")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    page.goto(f"{served.admin}/#addresses/%zz")
    expect(page.locator("main")).to_contain_text("Address %zz is not there")


def test_a_queue_has_its_page_whatever_its_name_is(served: Served, visit: Open) -> None:
    long, colons = (
        "long." + 900 * "x",
        {"destination": "/topic/page.colons", "client_id": "shop", "name": "eu::west"},
    )
    with Plain(served.port) as client:
        send(client, f"/queue/{long}", b"1")
    assert post(served.admin, "durables/create", colons).status == 200
    page = visit(
        served.admin, f"queues/{quote(f'{long}::{long}', safe='')}", viewport={"width": 390, "height": 844}
    )
    expect(page.get_by_role("link", name=f"Address {long}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for hash, address, name in (
        ("page.colons::shop.eu::west", "page.colons", "shop.eu::west"),
        (long, long, long),
    ):
        page.goto(f"{served.admin}/#queues/{quote(hash, safe='')}")
        expect(page.get_by_role("link", name=f"Address {address}")).to_be_visible()
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        expect(page.get_by_text("Kind", exact=True)).to_be_visible()


def test_the_plot_has_what_was_before_the_page(served: Served, visit: Open) -> None:
    """The broker remembers; a page that was loaded again, or just now, shows the time before."""
    with Plain(served.port) as client:
        for _ in range(3):
            send(client, "/queue/plot.before", b"1")
    deadline = time.monotonic() + 30
    while sum(read(served.admin, "history")["series"].get("received", [])[1:]) < 1:
        with Plain(served.port) as client:
            send(client, "/queue/plot.before", b"1")
        assert time.monotonic() < deadline, "no step of the history came"
    steps = len(read(served.admin, "history")["series"]["received"])
    page = visit(served.admin)
    points = re.compile(rf"^(\S+ ){{{steps - 1},}}\S+$")
    expect(page.locator(".chart polyline.in")).to_have_attribute("points", points)


# what can be seen and is not between the edges of the screen, whole
BEYOND = """() => [...document.querySelectorAll("nav a, main :is(button, a, input, select, textarea, th, td)")]
  .filter((one) => one.checkVisibility() && one.getClientRects().length)
  .map((one) => [one.textContent.slice(0, 40), one.getBoundingClientRect()])
  .filter(([, box]) => box.x < 0 || box.right > innerWidth || box.width === 0)
  .map(([text, box]) => [text, box.x, box.right])"""


def test_everything_is_in_sight_on_a_telephone(served: Served, visit: Open) -> None:
    """390 px: a row of many columns is a card there, with the names of its columns; what can be done with it stays where a thumb is."""
    with Plain(served.port, headers={"client-id": "phone"}) as client:
        send(client, "/queue/phone.orders.of.the.day", b"1")
        client.send(
            "SUBSCRIBE", {"destination": "/queue/phone.orders.of.the.day", "id": "1", "ack": "client"}
        )
        client.receive()
        request(
            client,
            "group-open",
            group="phone-lake",
            destinations="/queue/phone.orders.of.the.day",
            starting="earliest",
        )
        page = visit(served.admin, "groups", viewport={"width": 390, "height": 844})
        expect(page.locator("#state")).to_have_text("ready")
        for section in (
            "addresses/phone.orders.of.the.day",
            "queues/phone.orders.of.the.day%3A%3Aphone.orders.of.the.day",
            "addresses",
            "connections",
            "closed",
            "groups",
            "pipelines",
            "playground",
            "configuration",
            "users",
            "permissions",
            "settings/phone.orders.of.the.day",
            "listeners",
            "",
        ):
            page.goto(f"{served.admin}/?{len(section)}#{section}")  # loaded anew
            expect(page.locator("#state")).to_have_text("ready")
            expect(page.locator("main section, main .card, main form").first).to_be_visible()
            if section.startswith("addresses/"):
                expect(page.get_by_role("button", name="Purge…")).to_be_visible()
            assert page.evaluate(BEYOND) == [], section
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, section
            if place := os.environ.get("CONSOLE_PICTURES"):
                page.screenshot(path=f"{place}/{section.partition('/')[0] or 'overview'}-{len(section)}.png")
