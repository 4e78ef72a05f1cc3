"""The alert rules and the dashboard name metrics and labels that docs/metrics.md has, which test_metrics.py holds against a live broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.admin.test_metrics import ROOT, documented

DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
# those of the process stand in a sentence: they have no labels
METRICS = documented() | {name: ("", set()) for name in re.findall(r"`(stompbox_process_\w+)`", PAGE)}
RULES = yaml.safe_load((DEPLOY / "prometheus" / "stompbox-alerts.yml").read_text())["groups"]
DASHBOARD = json.loads((DEPLOY / "grafana" / "stompbox.json").read_text())
TARGETS = frozenset(("job", "instance"))  # labels that Prometheus adds to each series
ALERTS = [rule for group in RULES for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL)"""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for note in DASHBOARD["annotations"]["list"]:
        yield note["name"], note["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"].removeprefix("label_values(").rpartition(",")[0]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(("where", "text"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_an_expression_asks_for_what_there_is(where: str, text: str) -> None:
    names = set(re.findall(r"\bstompbox_\w+", text))
    assert names <= METRICS.keys()
    assert names or "up{" in text
    for name, matchers in re.findall(r"\b(stompbox_\w+)\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= METRICS[name][1] | TARGETS
    labels = set().union(*[METRICS[name][1] for name in names]) | TARGETS
    for by in re.findall(r"\bby \(([^)]*)\)", text):
        assert set(re.split(r",\s*", by)) <= labels
    assert all(text.count(left) == text.count(right) for left, right in ("()", "{}", "[]"))


@pytest.mark.parametrize(("where", "text"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_counters_are_looked_at_by_their_rate(where: str, text: str) -> None:
    for name in re.findall(r"\bstompbox_\w+_total\b", text):
        for at in (found.start() for found in re.finditer(rf"\b{name}\b", text)):
            assert re.search(r"(rate|increase)\($", text[:at]), f"{name} is a counter"


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Stompbox[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
        assert text
        named = set(re.findall(r"\$labels\.(\w+)", text))
        metrics = set(re.findall(r"\bstompbox_\w+", rule["expr"]))
        kept = re.findall(r"sum by \(([^)]*)\)", rule["expr"])
        known = (
            {*kept[0].split(", ")} if kept else set().union(*[METRICS[name][1] for name in metrics]) | TARGETS
        )
        assert named <= known


def labels_of(side: str) -> frozenset[str]:
    """Which labels the series of an operand have, as far as Prometheus pairs them by."""
    (name,) = set(re.findall(r"\bstompbox_\w+", side))
    labels = METRICS[name][1] | TARGETS
    if kept := re.search(r"\bby \(([^)]*)\)", side):
        return frozenset(re.split(r",\s*", kept[1]))
    left = re.search(r"\bwithout \(([^)]*)\)", side)
    return frozenset(labels - set(re.split(r",\s*", left[1]) if left else ()))


BOTH_SIDES = [(where, text) for where, text in EXPRESSIONS if re.search(r" / | and ", text)]


@pytest.mark.parametrize(("where", "text"), BOTH_SIDES, ids=[where for where, _ in BOTH_SIDES])
def test_what_is_compared_has_the_same_labels(where: str, text: str) -> None:
    """Prometheus pairs series whose labels are all equal: what is summed away on one side alone makes an alert that never comes."""
    sides = [side for side in re.split(r" / | and ", text) if "stompbox_" in side]
    assert len(sides) == 2
    left, right = map(labels_of, sides)
    # many series of the left side have one of the right side
    if on := re.match(r"on \(([^)]*)\) group_left \(\) ", sides[1]):
        assert right == frozenset(re.split(r",\s*", on[1])) < left
        return
    assert left == right


def test_alerts_have_one_name_each() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))


def test_the_reasons_and_fates_that_alerts_ask_for_are_documented() -> None:
    for rule in ALERTS:
        for _, values in re.findall(r"(reason|fate|kind|state)=~?\"([^\"]+)\"", rule["expr"]):
            assert all(f"`{value}`" in PAGE for value in values.split("|")), rule["alert"]


def test_panels_have_places_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


def test_every_family_of_metrics_is_shown_or_alerted() -> None:
    asked = {name for _, text in EXPRESSIONS for name in re.findall(r"\bstompbox_\w+", text)}
    asked |= {
        name.removesuffix("_bucket") + rest
        for name in asked
        if METRICS.get(name, ("",))[0] == "histogram"
        for rest in ("_sum", "_count")
    }
    unseen = {
        "stompbox_addresses", "stompbox_queues", "stompbox_user_made", "stompbox_memory_messages", "stompbox_not_listed",
        "stompbox_address_oldest_offset", "stompbox_queue_delayed_messages", "stompbox_events_total", "stompbox_unsaved_bytes",
        "stompbox_process_virtual_memory_bytes", "stompbox_process_start_time_seconds",
    }  # fmt: skip
    assert METRICS.keys() - asked <= unseen
