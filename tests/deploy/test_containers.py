"""Image, compose files and chart say what the broker takes: ports, folders, users, probes. Helm itself renders the chart; what comes of
it, and the manifests of a cluster, are of the schemas of Kubernetes, and the compose files of that of compose. test_images.py starts the
image where there is an engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import compose_spec
import kubernetes_validate
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


helm = pytest.importorskip("helm_python", reason="Helm as a library is there for Linux on x86-64 alone")


def rendered(name: str, values: dict[str, Any]) -> Any:
    """One template as `helm template broker deploy/helm/stompbox` has it: None where nothing is left of it."""
    with helm.Chart.load(CHART) as chart:
        text = chart.render(values, name="broker").get(f"stompbox/templates/{name}", "")
    return yaml.safe_load(text)


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
    with pytest.raises(helm.HelmError, match="users is empty"):
        rendered("secret.yaml", values(users=[]))


def test_what_is_asked_for_is_there() -> None:
    assert rendered("podmonitor.yaml", values()) is None
    monitor = rendered("podmonitor.yaml", values(podMonitor={"enabled": True, "secretName": "s"}))
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "admin"
    storage = {"size": "1Gi", "className": "fast"}
    (claim,) = rendered("statefulset.yaml", values(storage=storage))["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"


def test_helm_has_nothing_to_say_against_the_chart() -> None:
    found = helm.lint(CHART, values(), strict=True)
    assert found["errors"] == []
    assert [said["error"] for said in found["messages"] if said["severity"] > 1] == []


def test_a_value_that_is_none_is_refused_by_its_name() -> None:
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values())
        for name, wrong in WRONG_VALUES.items():
            with pytest.raises(helm.HelmError, match=name.replace(".", r"[./]")):
                chart.validate_schema(values(**wrong))


WRONG_VALUES: dict[str, dict[str, Any]] = {
    "storage.size": {"storage": {"size": "ten"}},
    "service.stompPort": {"service": {"stompPort": 616130}},
    "service.type": {"service": {"type": "Cluster"}},
    "users.0": {"users": [{"name": "operator"}]},
    "podMonitor.enabled": {"podMonitor": {"enabled": "yes"}},
    "replicas": {"replicas": 3},
}

# --- schemas --------------------------------------------------------------------------------------------------------------------

RELEASES = ("1.29", "1.37")  # of Kubernetes
OF_OTHERS = {"PodMonitor"}  # what the Prometheus operator brings


def manifests() -> list[dict[str, Any]]:
    asked = values(
        podMonitor={"enabled": True, "secretName": "metrics"},
        tolerations=[{"key": "broker", "operator": "Exists", "effect": "NoSchedule"}],
        nodeSelector={"disk": "ssd"},
        storage={"size": "1Gi", "className": "fast"},
    )
    of_the_chart = [rendered(path.name, asked) for path in sorted((CHART / "templates").iterdir())]
    of_the_cluster = yaml.safe_load_all((DEPLOY / "kubernetes" / "cluster.yaml").read_text())
    return [*of_the_chart, *of_the_cluster]


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_of_the_schemas_of_kubernetes(release: str) -> None:
    looked_at = [found for found in manifests() if found["kind"] not in OF_OTHERS]
    for found in looked_at:
        kubernetes_validate.validate(found, release, strict=True)
    assert {found["kind"] for found in looked_at} >= {"StatefulSet", "Service", "Secret", "ConfigMap"}


def test_a_word_that_kubernetes_does_not_know_is_found() -> None:
    stateful = rendered("statefulset.yaml", values())
    stateful["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(stateful, RELEASES[-1], strict=True)


@pytest.mark.parametrize("name", ["compose.yaml", "cluster.yaml"])
def test_compose_files_are_of_the_schema_of_compose(name: str) -> None:
    text = (DEPLOY / "compose" / name).read_text()
    composed(text).validate()
    with pytest.raises(ValueError, match="readonly"):
        composed(text.replace("read_only:", "readonly:"))


def composed(text: str) -> compose_spec.PyCompose:
    """After YAML's merge keys, which compose knows in places where this library does not."""
    return compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(text)))
