"""Image, compose file and chart say what the broker takes: ports, folders, users, probes. The chart's templates use few words of Helm's,
which are rendered here; no container is started."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stompbox.config import parse_listener, read
from stompbox.server.verifying import verify
from tests.admin.test_metrics import ROOT

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
CHART = DEPLOY / "helm" / "stompbox"
USERS = [{"name": "operator", "password": "a", "groups": ["operators"]}]


def test_the_image_is_of_no_root_and_has_a_health_check() -> None:
    assert re.findall(r"^USER (.+)$", CONTAINERFILE, re.M) == ["10001:10001"]
    assert "/readyz" in CONTAINERFILE.partition("HEALTHCHECK")[2]
    copied = [
        word for line in re.findall(r"^COPY (?!--)(.+)$", CONTAINERFILE, re.M) for word in line.split()[:-1]
    ]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    ignored = (DEPLOY / "container" / "Containerfile.dockerignore").read_text().split()
    assert {word.removeprefix("!") for word in ignored if word.startswith("!")} == set(copied)


def test_the_image_copies_what_the_wheel_is_made_of() -> None:
    """What pyproject.toml names must be there, or the build ends."""
    project = (ROOT / "pyproject.toml").read_text()
    for name in ("README.md", "hatch_build.py"):
        assert name.partition(".")[0] in project and f" {name}" in CONTAINERFILE


def test_the_broker_of_the_compose_file_starts_with_its_configuration() -> None:
    service = COMPOSE["services"]["stompbox"]
    told = re.sub(
        r"\$\{STOMPBOX_PASSCODE:\?[^}]*\}", "letters4nddigits", service["environment"]["STOMPBOX_USER"]
    )
    loaded = read(DEPLOY / "compose" / "stompbox.toml", {"STOMPBOX_USER": told})
    warnings = verify(loaded)
    assert [warning for warning in warnings if "plain text" not in warning] == []
    ports = {parse_listener(table.url).port for table in loaded.configuration.listeners} | {8161}
    assert {int(port.rpartition(":")[2]) for port in service["ports"]} == ports
    assert loaded.configuration.users[0].name == prometheus()["scrape_configs"][0]["basic_auth"]["username"]


def prometheus() -> dict[str, Any]:
    found = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    assert isinstance(found, dict)
    return found


def test_what_the_compose_file_mounts_is_there() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), volume
            else:
                assert source in COMPOSE["volumes"], volume
    assert prometheus()["scrape_configs"][0]["job_name"] == "stompbox"  # as the alert rules have it


# --- the chart ------------------------------------------------------------------------------------------------------------------


class Failed(Exception):
    """What `fail` of a template says."""


def rendered(name: str, values: dict[str, Any]) -> Any:
    """One template, with `if`, `fail`, values, and `quote`, `toJson` and `default` behind them."""
    text = (CHART / "templates" / name).read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {"Values": values, "Release": {"Name": "broker"}, "Chart": {"AppVersion": chart["appVersion"]}}
    kept, shown = list[str](), [True]
    for line in text.splitlines():
        if found := re.fullmatch(r"\s*\{\{- (if|end|fail)(?: (.+?))? \}\}", line):
            if found[1] == "if":
                shown.append(shown[-1] and is_true(found[2], scope))
            elif found[1] == "end":
                shown.pop()
            elif shown[-1]:
                raise Failed(found[2])
        elif shown[-1]:
            kept.append(re.sub(r"\{\{ (.+?) \}\}", lambda found: said(found[1], scope), line))
    assert shown == [True]
    return yaml.safe_load("\n".join(kept))


def is_true(text: str, scope: dict[str, Any]) -> bool:
    return (
        not value(text.removeprefix("not "), scope) if text.startswith("not ") else bool(value(text, scope))
    )


def value(path: str, scope: dict[str, Any]) -> Any:
    found: Any = scope
    for word in path.removeprefix(".").split("."):
        found = found[word]
    return found


def said(text: str, scope: dict[str, Any]) -> str:
    path, *functions = text.split(" | ")
    found = value(path, scope)
    for function in functions:
        is_json = function in ("quote", "toJson")
        found = json.dumps(found) if is_json else found or value(function.removeprefix("default "), scope)
    return str(found)


def values(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found | {"users": USERS} | changed


def test_the_pod_has_what_the_broker_needs() -> None:
    stateful = rendered("statefulset.yaml", values())
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (stateful["spec"]["replicas"], pod["securityContext"]["runAsNonRoot"]) == (1, True)
    assert container["image"] == "stompbox:0.1.0"
    assert {probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")} == {
        "startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz",
    }  # fmt: skip
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    made = {volume["name"] for volume in pod["volumes"]} | {
        claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]
    }
    assert mounted == made
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    service = rendered("service.yaml", values())
    assert service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"] == labels
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {
        port["name"] for port in container["ports"]
    }


def test_a_broker_starts_with_the_configuration_of_the_chart(tmp_path: Path) -> None:
    secret = rendered("secret.yaml", values())
    (tmp_path / "stompbox.toml").write_text(secret["stringData"]["stompbox.toml"])
    loaded = read(tmp_path / "stompbox.toml", {"STOMPBOX_USER": secret["stringData"]["users.json"]})
    verify(loaded)
    assert [user.name for user in loaded.configuration.users] == ["operator"]


def test_without_users_the_chart_is_refused() -> None:
    with pytest.raises(Failed, match="users is empty"):
        rendered("secret.yaml", values(users=[]))


def test_what_is_asked_for_is_there() -> None:
    assert rendered("podmonitor.yaml", values()) is None
    monitor = rendered("podmonitor.yaml", values(podMonitor={"enabled": True, "secretName": "s"}))
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "admin"
    storage = {"size": "1Gi", "className": "fast"}
    (claim,) = rendered("statefulset.yaml", values(storage=storage))["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
