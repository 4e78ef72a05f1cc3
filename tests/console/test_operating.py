"""What an operator does in the console: send, look, choose, find out; in a browser, against brokers that are really used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.admin.asking import read
from tests.admin.conftest import Start
from tests.admin.test_views import send
from tests.conftest import Serve, Served
from tests.console.conftest import Open
from tests.console.test_console import ANSWERED, HOSTILE, cell, log_in, look_again, row
from tests.console.test_console import USERS as ROOT_AND_BOB
from tests.system.plain import Plain
from tests.users import users

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

DEAD = '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 1\ndead-letter-address = "DLQ"\n'
OBEYED = """
fronts = 1
[admin]
max-requests-per-second = 200
[[permission]]
match = "orders.#"
send = ["shops"]
manage = ["admins"]
[[permission]]
match = "#"
manage = ["admins"]
[[address-setting]]
match = "orders.#"
max-delivery-attempts = 3
""" + users("root:r00t@admins", "bob:b0b@shops")


def messages(served: Served, queue: str) -> list[dict[str, Any]]:
    return list(read(served.admin, f"messages?queue={queue}&whole=true")["messages"])


def on_queue(name: str) -> str:
    return f"queues/{name}%3A%3A{name}"


# --- sending ------------------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_and_what_is_wrong_with_it_is_said(served: Served, visit: Open) -> None:
    page = visit(served.admin, "addresses", may_say=(f"{ANSWERED} 4",))
    page.get_by_role("button", name="Send a message…").click()
    dialog = page.get_by_role("dialog")
    go, problem = dialog.get_by_role("button", name="Send", exact=True), dialog.get_by_role("alert")
    go.click()
    expect(problem).to_have_text("The destination is missing.")
    dialog.get_by_label("Destination").fill("/queue/by.hand")
    dialog.get_by_label("More headers").fill("region: EU\nno colon here")
    go.click()
    expect(problem).to_contain_text("Line 2 of the headers is “no colon here”")
    dialog.get_by_label("More headers").fill("region: EU\nnote: a: b")
    dialog.get_by_label("The body is").select_option("json")
    dialog.get_by_label("Body", exact=True).fill('{"open": ')
    go.click()
    expect(problem).to_contain_text("The body is no JSON")
    dialog.get_by_label("Body", exact=True).fill('{"open": true}')
    go.click()
    expect(page.get_by_role("status").filter(has_text="Sent to /queue/by.hand")).to_be_visible()
    [found] = messages(served, "by.hand")
    assert found["body"] == '{"open": true}'
    assert (found["headers"]["region"], found["headers"]["note"]) == ("EU", "a: b")
    assert found["headers"]["content-type"] == "application/json"


def test_octets_are_sent_as_hex_and_the_brokers_refusal_is_shown(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/octets", b"1")
    page = visit(served.admin, "addresses/octets", may_say=(f"{ANSWERED} 4",))
    page.get_by_role("button", name="Send…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Destination")).to_have_value("/queue/octets")
    dialog.get_by_label("The body is").select_option("hex")
    dialog.get_by_label("Body", exact=True).fill("ff 0")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("odd number of digits")
    dialog.get_by_label("Body", exact=True).fill("ff 00 7f")
    dialog.get_by_label("More headers").fill("priority: 99")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(re.compile(r"\([a-z-]+\)"))
    dialog.get_by_label("More headers").fill("")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog).to_be_hidden()
    assert messages(served, "octets")[1]["body_base64"] == "/wB/"


# --- looking ------------------------------------------------------------------------------------------------------------------


def shown(page: Page, offset: str) -> Locator:
    """The dialog of one message."""
    row(page, offset).get_by_role("button", name="Show…").click()
    return page.get_by_role("dialog")


def test_messages_are_looked_at_page_by_page_as_text_json_and_hex(served: Served, visit: Open) -> None:
    number = "12345678901234567890"  # more digits than a browser's numbers have
    with Plain(served.port) as client:
        document = f'{{"id":{number},"items":[{{"sku":"a,b: {{"}},[],{{}}]}}'.encode()
        send(client, "/queue/pages", document, HOSTILE.encode(), b"\xff\xfe\x00A", kind="first")
        send(client, "/queue/pages", *[b"n%d" % count for count in range(60)], kind="rest")
        page = visit(served.admin, on_queue("pages"))
        expect(page.locator(".messages")).to_contain_text("50 messages, offsets 0 to 49")
        dialog = shown(page, "0")
        expect(dialog.get_by_role("button", name="JSON")).to_have_attribute("aria-pressed", "true")
        pretty = dialog.locator("pre").inner_text()
        assert json.loads(pretty) == json.loads(document) and number in pretty
        assert pretty.splitlines()[:3] == ["{", f'  "id": {number},', '  "items": [']
        dialog.get_by_role("button", name="Hex").click()
        expect(dialog.locator("pre")).to_contain_text("00000000  7b 22 69 64 22 3a")
        page.keyboard.press("Escape")
        dialog = shown(page, "1")
        expect(dialog.locator("pre")).to_have_text(HOSTILE)
        expect(dialog.get_by_role("button", name="JSON")).to_be_disabled()
        expect(dialog.locator("dd").get_by_text("first")).to_be_visible()
        page.keyboard.press("Escape")
        expect(shown(page, "2").locator("pre")).to_contain_text("ff fe 00 41")
        page.keyboard.press("Escape")
        assert page.locator("main img, dialog img").count() == 0
        page.get_by_role("button", name="Next").click()
        expect(page.locator(".messages")).to_contain_text("13 messages, offsets 50 to 62")
        expect(page.get_by_role("button", name="Next")).to_be_disabled()
        page.get_by_role("button", name="Previous").click()
        expect(page.locator(".messages")).to_contain_text("offsets 0 to 49")
        page.get_by_label("Selector").fill("kind = 'first'")
        page.get_by_role("button", name="Look again").click()
        expect(page.locator(".messages")).to_contain_text("3 messages, offsets 0 to 2")
        assert len(messages(served, "pages")) == 63


def test_a_wrong_selector_is_said_where_it_is(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/selected", b"1")
    page = visit(served.admin, on_queue("selected"), may_say=(f"{ANSWERED} 400",))
    page.get_by_label("Selector").fill("region = ")
    page.get_by_role("button", name="Look again").click()
    expect(page.locator(".messages").get_by_role("alert")).to_contain_text(re.compile(r"\([a-z-]+\)"))
    expect(row(page, "0")).to_be_visible()


def test_chosen_dead_letters_go_back_or_for_good(start: Start, visit: Open) -> None:
    served = start(DEAD)
    with Plain(served.port) as client:
        send(client, "/queue/work", b"a", b"b", b"c", b"d")
        client.send("SUBSCRIBE", {"destination": "/queue/work", "id": "1", "ack": "client-individual"})
        for _ in range(4):
            client.send("NACK", {"id": client.receive().headers["ack"]})
        client.send("UNSUBSCRIBE", {"id": "1"})
        client.sync()
    page = visit(served.admin, on_queue("DLQ"))
    expect(page.get_by_role("button", name="Delete…")).to_be_disabled()
    page.get_by_label("Choose offset 1").focus()
    page.keyboard.press("Space")
    expect(page.locator(".chosen")).to_contain_text("1 chosen")
    page.get_by_role("button", name="Send back…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Send back").click()
    expect(page.get_by_role("status").filter(has_text="1 message sent back from DLQ")).to_be_visible()
    assert [one["body"] for one in messages(served, "work")] == ["b"]
    expect(row(page, "1")).to_have_count(0)
    page.get_by_role("button", name="Choose all of this page").click()
    page.get_by_label("Choose offset 0").uncheck()
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("dialog")).to_contain_text("They cannot be brought back")
    page.keyboard.press("Escape")
    assert len(messages(served, "DLQ")) == 3
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete 2 messages").click()
    expect(page.locator(".messages")).to_contain_text("1 message, offsets 0 to 0")
    assert [one["body"] for one in messages(served, "DLQ")] == ["a"]


def test_the_consumers_of_a_queue_and_what_they_hold(served: Served, visit: Open) -> None:
    with Plain(served.port, headers={"client-id": "till-3"}) as client:
        send(client, "/queue/held", *[b"x"] * 5)
        headers = {
            "destination": "/queue/held",
            "id": "s9",
            "ack": "client-individual",
            "prefetch-count": "2",
        }
        client.send("SUBSCRIBE", headers)
        for _ in range(2):
            client.receive()
        page = visit(served.admin, on_queue("held"))
        port = client.socket.getsockname()[1]
        holder = page.get_by_role("row").filter(has_text="till-3")
        expect(holder).to_contain_text(f"127.0.0.1:{port}till-3s9client-individual2offset 0")
        expect(page.locator(".messages").get_by_text("in delivery")).to_have_count(2)
        expect(page.get_by_label("Choose offset 0")).to_be_disabled()
        holder.get_by_role("link").click()
        expect(page.locator(".facts")).to_contain_text(f"127.0.0.1:{port}")


def test_why_a_connection_is_gone(served: Served, visit: Open) -> None:
    with Plain(served.port, headers={"client-id": "came-and-went"}) as client:
        [one] = read(served.admin, "connections?match=came-and-went")["connections"]
        client.send("SUBSCRIBE", {"destination": "/queue/x"})
        assert client.receive().headers["code"] == "missing-id"
    page = visit(served.admin, "connections")
    page.get_by_role("link", name="Closed").click()
    gone = page.get_by_role("row").filter(has_text="came-and-went")
    expect(gone).to_contain_text("missing-id")
    expect(gone).to_contain_text("SUBSCRIBE needs an id header")
    page.goto(f"{served.admin}/#connections/{one['id']}")
    expect(page.locator("main")).to_contain_text("SUBSCRIBE needs an id header in STOMP 1.2 (missing-id)")


# --- plots --------------------------------------------------------------------------------------------------------------------


def test_the_plots_of_an_address_survive_a_reload(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/plotted", b"1")
    page = visit(served.admin, "addresses/plotted")
    line = page.locator(".chart polyline.in")
    expect(line).to_have_attribute("points", re.compile(r" "))
    page.reload()
    expect(line).to_have_attribute("points", re.compile(r" "))
    plot = page.get_by_role("img", name=re.compile(r"^Messages per second: .* in, .* done$"))
    plot.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("img", name=re.compile(r" done, .*\d:\d\d"))).to_be_visible()
    page.get_by_role("button", name="24 hours").click()
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("img", name=re.compile("^Messages ready: "))).to_be_visible()


def test_rows_of_busy_addresses_have_a_small_plot(served: Served, visit: Open) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/sparked", b"1")
    page = visit(served.admin, "pipelines")
    drawn = {"until": 0, "step": 20_000, "addresses": {"sparked": [-1, 0, 400, 100]}}
    page.route("**/api/v1/activity", lambda route: route.fulfill(json=drawn))
    page.get_by_role("link", name="Addresses").click()
    spark = cell(page, "sparked", "Last 10 min").get_by_role("img")
    expect(spark).to_have_accessible_name("At most 20 messages a second in the last ten minutes")
    expect(spark.locator("polyline")).to_have_attribute("points", re.compile(r"^(\S+ ){3}\S+$"))


# --- what the broker obeys ----------------------------------------------------------------------------------------------------


def test_users_permissions_settings_listeners_and_keys_with_where_they_were_set(
    start: Start, visit: Open
) -> None:
    served = start(OBEYED)
    page = visit(served.admin)
    page.get_by_label("Login").fill("root")
    page.get_by_label("Passcode").fill("r00t")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Configuration").click()
    expect(cell(page, "admin.session-timeout", "Set in")).to_have_text("default")
    page.get_by_label("Only what is set").check()
    expect(cell(page, "fronts", "Set in")).to_have_text(re.compile(r"stompbox\.toml:2$"))
    expect(cell(page, "admin.listen", "Set in")).to_have_text("--admin")
    expect(row(page, "log-level")).to_have_count(0)
    page.get_by_role("link", name="Users").click()
    expect(cell(page, "bob", "Groups")).to_have_text("shops")
    expect(cell(page, "bob", "Set in")).to_contain_text("stompbox.toml:")
    page.get_by_role("link", name="Permissions").click()
    expect(cell(page, "orders.#", "Rights")).to_contain_text("sendshops")
    page.get_by_role("link", name="Listeners").click()
    expect(cell(page, str(served.port), "Host")).to_have_text("127.0.0.1")
    page.get_by_role("button", name="Options…").click()
    expect(page.get_by_role("dialog")).to_contain_text("connectionTtl")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Address settings").click()
    page.get_by_label("The address, which need not be there").fill("orders.new")
    page.get_by_role("button", name="Show").click()
    expect(cell(page, "max-delivery-attempts", "Value")).to_have_text("3")
    expect(cell(page, "max-delivery-attempts", "By the setting of")).to_have_text("orders.#")
    expect(cell(page, "redelivery-delay", "Set in")).to_have_text("default")
    page.get_by_role("link", name="Fronts").click()
    expect(cell(page, "front 1", "Connections")).to_have_text("0")
    page.get_by_role("link", name="Overview").click()
    expect(row(page, "front 1")).to_be_visible()


def test_users_permissions_and_settings_are_changed_while_it_runs(start: Start, visit: Open) -> None:
    served = start(OBEYED)
    page = visit(served.admin, may_say=(f"{ANSWERED} 4",))
    page.get_by_label("Login").fill("root")
    page.get_by_label("Passcode").fill("r00t")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#state")).to_have_text("ready")
    page.goto(f"{served.admin}/#users")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Add a user…").click()
    dialog.get_by_label("Name").fill("carol")
    dialog.get_by_label("Passcode").fill("c4r0l")
    dialog.get_by_label("Groups").fill("shops, auditors")
    dialog.get_by_role("button", name="Add").click()
    expect(cell(page, "carol", "Groups")).to_have_text("shops, auditors")
    expect(cell(page, "carol", "Set in")).to_have_text("run time")
    row(page, "bob").get_by_role("button", name="Change…").click()
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_contain_text("(defined-elsewhere)")
    page.keyboard.press("Escape")
    row(page, "carol").get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete the user").click()
    expect(row(page, "carol")).to_have_count(0)
    page.goto(f"{served.admin}/#permissions")
    page.get_by_role("button", name="Set a permission…").click()
    dialog.get_by_label("Addresses").fill("stock.#")
    dialog.get_by_label("A right and its groups").fill("send: shops\nno colon")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Line 2 of the rights is “no colon”")
    dialog.get_by_label("A right and its groups").fill("send: shops\nconsume: shops, admins")
    dialog.get_by_role("button", name="Set").click()
    expect(cell(page, "stock.#", "Rights")).to_contain_text("consumeadmins, shops")
    page.goto(f"{served.admin}/#settings/stock.new")
    page.get_by_role("button", name="Change settings…").click()
    expect(dialog.get_by_label("Addresses")).to_have_value("stock.new")
    dialog.get_by_label("A key and its value").fill("max-delivery-attempts: 7\nmax-size-bytes: 64MiB")
    dialog.get_by_role("button", name="Change").click()
    expect(cell(page, "max-delivery-attempts", "Value")).to_have_text("7")
    expect(cell(page, "max-size-bytes", "Value")).to_have_text(str(64 << 20))
    page.get_by_role("button", name="Take changes away…").click()
    dialog.get_by_role("button", name="Take them away").click()
    expect(cell(page, "max-delivery-attempts", "Set in")).to_have_text("default")


def test_definitions_are_imported_after_a_look_at_what_would_change(
    start: Start, visit: Open, tmp_path: Path
) -> None:
    served = start("")
    page = visit(served.admin, "configuration", may_say=(f"{ANSWERED} 4",))
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Import definitions…").click()
    look = dialog.get_by_role("button", name="Show what would change")
    look.click()
    expect(dialog.get_by_role("alert")).to_have_text("There are no definitions.")
    dialog.get_by_label("Definitions").fill('[[address-setting]]\nmatch = "a.#"\nmax-delivery-attempt = 3')
    look.click()
    expect(dialog.get_by_role("alert")).to_contain_text("line 3: ")
    expect(dialog.get_by_role("alert")).to_contain_text("max-delivery-attempts")
    file = tmp_path / "all.toml"
    file.write_text(
        '[[address-setting]]\nmatch = "a.#"\nmax-delivery-attempts = 3\n'
        '[[address]]\nname = "a.b"\n[[address.queue]]\nname = "a.q"\n'
    )
    dialog.get_by_label("A file").set_input_files(str(file))
    expect(dialog.get_by_label("Definitions")).to_have_value(file.read_text())
    look.click()
    expect(dialog).to_contain_text("1 table of settings would be defined, 1 address and 1 queue made.")
    assert read(served.admin, "settings?address=a.b")["settings"]["max-delivery-attempts"]["match"] is None
    dialog.get_by_role("button", name="Cancel").click()
    assert read(served.admin, "addresses?address=a.b")["total"] == 0
    page.get_by_role("button", name="Import definitions…").click()
    dialog.get_by_label("A file").set_input_files(str(file))
    expect(dialog.get_by_label("Definitions")).to_have_value(file.read_text())
    dialog.get_by_label("What was defined").select_option("goes")
    look.click()
    expect(dialog).to_contain_text("are not named go.")
    dialog.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="The definitions are imported")).to_be_visible()
    assert read(served.admin, "settings?address=a.b")["settings"]["max-delivery-attempts"]["match"] == "a.#"
    assert [one["name"] for one in read(served.admin, "queues?address=a.b")["queues"]] == ["a.q"]


# --- the playground -----------------------------------------------------------------------------------------------------------


def frames(page: Page, command: str) -> Locator:
    return (
        page.get_by_role("log").get_by_role("article").filter(has=page.get_by_role("heading", name=command))
    )


def test_the_playground_speaks_stomp(served: Served, visit: Open) -> None:
    page = visit(served.admin, "playground")
    expect(page.get_by_label("Listener")).to_have_value(f"ws://127.0.0.1:{served.port}/")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(frames(page, "CONNECTED")).to_contain_text("version: 1.2")
    page.get_by_label("From the destination").fill("/queue/played")
    page.get_by_label("Acknowledged").select_option("client-individual")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_label("To the destination").fill("/queue/played")
    page.get_by_label("Headers, one a line").fill("note: a:b")
    page.get_by_label("Body").fill(HOSTILE)
    page.get_by_role("button", name="Send", exact=True).click()
    message = frames(page, "MESSAGE")
    expect(message.locator("pre.body")).to_have_text(HOSTILE)
    expect(message).to_contain_text("note: a:b")
    assert page.locator("main img").count() == 0
    message.get_by_role("button", name="ACK", exact=True).click()
    expect(frames(page, "ACK")).to_be_visible()
    with Plain(served.port) as client:  # octets that are no text, and JSON
        send(client, "/queue/played", b"\xff\x00")
        send(client, "/queue/played", b'{"a":1}')
    expect(message.nth(1).locator("pre.body")).to_contain_text("ff 00")
    expect(message.nth(2).locator("pre.body")).to_have_text('{\n  "a": 1\n}')
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="Playground").click()
    expect(message).to_have_count(3)
    page.get_by_role("button", name="Unsubscribe 0 from /queue/played").click()
    page.get_by_role("button", name="Disconnect").click()
    expect(page.locator(".state").last).to_have_text("closed")
    expect(page.locator("main").get_by_role("alert")).to_have_count(0)


def test_the_playground_says_why_it_was_refused_and_begins_again(serve: Serve, visit: Open) -> None:
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    page = visit(served.admin, "playground", may_say=("WebSocket connection", "Failed to load resource"))
    begin = page.get_by_role("button", name="Connect", exact=True)
    begin.click()
    expect(frames(page, "CONNECTED")).to_have_count(1)
    page.get_by_label("From the destination").fill("/queue/x")
    page.get_by_label("By the selector").fill("a = ")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(frames(page, "ERROR")).to_contain_text("code: ")
    problem = page.locator("main").get_by_role("alert")
    expect(problem).to_contain_text("The connection is closed")
    begin.click()
    expect(frames(page, "CONNECTED")).to_have_count(2)
    assert served.stop() == 0
    expect(problem).to_contain_text("Connect begins again")
    begin.click()
    expect(problem).to_contain_text("it was never open")


# --- whoever looks ------------------------------------------------------------------------------------------------------------

CONTRAST = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = numbers(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest(":disabled, .skip, .unseen, option")) continue;
    const style = getComputedStyle(element);
    const text = light(numbers(element instanceof SVGElement ? style.fill : style.color));
    const [high, low] = [text, light(ground(element))].sort((one, other) => other - one);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5) || style.opacity < 1) bad.push([walker.currentNode.data.slice(0, 40), ratio.toFixed(2)]);
  }
  return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(served: Served, visit: Open, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1, large text 3 to 1."""
    with Plain(served.port) as client:
        send(client, "/queue/seen.well", b"1")
        page = visit(served.admin, "playground", color_scheme=scheme)
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(frames(page, "CONNECTED")).to_be_visible()
        for section in (
            "playground",
            "addresses/seen.well",
            on_queue("seen.well"),
            "closed",
            "users",
            "settings/x",
            "",
        ):
            page.goto(f"{served.admin}/#{section}")
            expect(page.locator("main section:visible").first).to_be_visible()
            look_again(page)
            assert page.evaluate(CONTRAST) == [], section


def test_a_session_that_has_ended_is_said_and_the_page_goes_on_where_it_was(
    start: Start, visit: Open
) -> None:
    served = start(ROOT_AND_BOB)
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        send(client, "/queue/open.q", b"1", b"2")
        page = visit(served.admin, "addresses", may_say=(f"{ANSWERED} 401",))
        log_in(page, "root", "r00t")
        expect(cell(page, "open.q", "Ready")).to_have_text("2")
        expect(page.get_by_role("button", name="Log out root")).to_be_visible()
        ended = page.request.post(f"{served.admin}/api/v1/session/end", data={})  # as if its time were over
        assert ended.ok, ended.text()
        expect(page.get_by_role("alert")).to_contain_text("The session has ended.")
        log_in(page, "root", "r00t")
        expect(cell(page, "open.q", "Ready")).to_have_text("2")
        page.get_by_role("button", name="Log out root").click()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden()


def test_an_old_browser_is_told_so(served: Served, browser: Any) -> None:
    page = browser.new_context().new_page()
    page.add_init_script("delete window.HTMLDialogElement")
    page.goto(served.admin)
    expect(page.get_by_role("alert")).to_contain_text("This browser is older than the console needs")
    page.context.close()


def test_a_part_that_did_not_come_is_said(served: Served, browser: Any) -> None:
    page = browser.new_context().new_page()
    page.route("**/stomp.js", lambda route: route.abort())
    page.goto(served.admin)
    expect(page.get_by_role("alert")).to_have_text("A part of the console did not come. Load the page again.")
    page.evaluate("window.dispatchEvent(new ErrorEvent('error', {message: 'what fails for want of it'}))")
    expect(page.get_by_role("alert")).to_have_text("A part of the console did not come. Load the page again.")
    page.unroute("**/stomp.js")
    page.reload()
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.context.close()


def test_a_broker_of_another_version_asks_for_the_page_again(served: Served, visit: Open) -> None:
    page = visit(served.admin)
    expect(page.locator("#state")).to_have_text("ready")
    status = read(served.admin, "status") | {"version": "99.0"}
    page.route("**/api/v1/status", lambda route: route.fulfill(json=status))
    look_again(page)
    expect(page.get_by_role("alert")).to_contain_text("The broker is version 99.0 now")
