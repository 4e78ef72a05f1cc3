"""The console's page of a cluster, at the leader and at a node that follows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.console.conftest import Open
from tests.console.test_console import ANSWERED, BEYOND
from tests.console.test_operating import CONTRAST
from tests.crash.cluster import Cluster, NodeProcess

pytest.importorskip("playwright")
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    found = Cluster(folder, f"disk://{folder}/log", names="ab")
    for node in found.nodes:
        node.takeover = 6000  # a busy machine is no reason to change the leader here
    found.start()
    yield found
    found.end()


def told(cluster: Cluster) -> tuple[NodeProcess, NodeProcess]:
    """(who leads, who follows), when both are ready."""

    async def look() -> NodeProcess:
        await cluster.until_ready()
        return await cluster.until_led()

    leader = outside(look)
    [follower] = [node for node in cluster.nodes if node is not leader]
    return leader, follower


def outside(look: object) -> NodeProcess:
    """Runs in a thread: playwright's loop has this one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(look())).result()  # type: ignore[operator]


def test_the_leader_shows_its_nodes_and_asks_before_it_changes_them(cluster: Cluster, visit: Open) -> None:
    leader, follower = told(cluster)
    page = visit(f"http://{leader.admin}", "cluster")
    expect(page.get_by_role("link", name="Cluster")).to_have_attribute("aria-current", "page")
    expect(page.locator(".facts")).to_contain_text(f"Leads{leader.name}")
    expect(page.get_by_role("table", name="Who took over")).to_contain_text("nobody had led yet")
    button = page.get_by_role("button", name=f"Drain {follower.name}…")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It does not lead by itself until it may again")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_visible()  # nothing was done
    button.press("Enter")
    dialog.get_by_role("button", name="Drain it").press("Enter")
    undo = page.get_by_role("button", name=f"Undo drain of {follower.name}…")
    expect(undo).to_be_visible()
    undo.click()
    dialog.get_by_role("button", name="It may lead").click()
    expect(button).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_follower_says_so_and_leads_to_the_leaders_console(
    cluster: Cluster, visit: Open, scheme: str
) -> None:
    leader, follower = told(cluster)
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
    page = visit(f"http://{follower.admin}", "", may_say=(ANSWERED,), **phone)
    expect(page.locator("#state")).to_have_text("follows")
    expect(page).to_have_url(re.compile("#cluster$"))
    notice = page.get_by_role("alert").filter(has_text=f"Node {follower.name} follows")
    expect(notice.get_by_role("link", name=f"Console of node {leader.name}")).to_have_attribute(
        "href", f"http://{leader.admin}"
    )
    expect(page.get_by_role("table", name="Nodes")).to_contain_text(leader.name)
    expect(page.get_by_role("button", name="Promote")).to_have_count(0)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(BEYOND) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"http://{follower.admin}/#connections")
    expect(page.get_by_role("heading", name="Connections")).to_be_visible()
    page.goto(f"http://{follower.admin}/#queues/x")
    expect(page.locator(".empty").filter(has_text="(not-the-leader)").first).to_be_visible()


def test_a_node_is_promoted_and_the_other_one_follows(cluster: Cluster, visit: Open) -> None:
    leader, follower = told(cluster)
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    page = visit(f"http://{leader.admin}", "cluster", may_say=(ANSWERED, "Failed to load resource"), **phone)
    expect(page.get_by_role("button", name=f"Promote {follower.name}…")).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(BEYOND) == []
    page.get_by_role("button", name=f"Promote {follower.name}…").click()
    expect(page.get_by_role("dialog")).to_contain_text("The clients of all nodes connect once more")
    page.get_by_role("button", name="Hand over").click()
    expect(page.locator("#state")).to_have_text("follows")
    expect(page.locator(".facts")).to_contain_text(f"Leads{follower.name}")
    expect(page.get_by_role("table", name="Who took over")).to_contain_text("the leader handed over")
