"""The examples of a cluster, for compose and for Kubernetes: each node has a configuration that counts, a name of its own and an address
where the others find it, and its log is one that Stompbox takes. No container is started; NATS's own server reads its configuration."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from stompbox.config import Configuration, read
from stompbox.config.cluster import LEAST_SECRET
from stompbox.server.verifying import verify
from tests.admin.test_metrics import ROOT
from tests.commitlog.natsservers import BINARY

COMPOSE = ROOT / "deploy" / "compose"
SERVICES = yaml.safe_load((COMPOSE / "cluster.yaml").read_text())["services"]
NODES = {name: service for name, service in SERVICES.items() if name.startswith("node-")}
SERVERS = {name: service for name, service in SERVICES.items() if name.startswith("nats-")}
KUBERNETES = {
    (found["kind"], found["metadata"]["name"]): found
    for found in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "cluster.yaml").read_text())
}
STATEFUL = KUBERNETES["StatefulSet", "stompbox"]["spec"]
POD = STATEFUL["template"]["spec"]
CONTAINER = POD["containers"][0]
GIVEN = {"STOMPBOX_PASSCODE": "letters4nddigits", "STOMPBOX_SECRET": "x" * LEAST_SECRET}


def filled(text: str, given: Mapping[str, str]) -> str:
    """A text with `${NAME:?why}` and `$(NAME)` in it, as compose and Kubernetes read it."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}|\$\((\w+)\)", lambda found: given[found[1] or found[2]], text)


def configured(path: Path, environment: Mapping[str, str]) -> Configuration:
    loaded = read(path, {name: text for name, text in environment.items() if name.startswith("STOMPBOX_")})
    verify(loaded)
    return loaded.configuration


def hosts_of(log: str) -> tuple[list[str], list[str]]:
    """Those of the servers in the URL of a log, and of their monitoring ports."""
    url = urlsplit(log)
    monitors = parse_qs(url.query)["monitor"][0].split(",")
    return [host.rpartition(":")[0] for host in url.netloc.split(",")], [
        urlsplit(monitor).hostname or "" for monitor in monitors
    ]


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_the_compose_file_has_a_configuration(name: str) -> None:
    service = NODES[name]
    environment = {key: filled(text, GIVEN) for key, text in service["environment"].items()}
    table = configured(COMPOSE / "cluster.toml", environment).cluster
    assert f"node-{table.node}" == name
    assert table.advertise == f"{name}:61700"
    assert table.advertise in table.nodes and len(table.nodes) == len(NODES)
    assert hosts_of(table.log or "") == ([*SERVERS], [*SERVERS])
    assert "61613" in [port.rpartition(":")[2] for port in service["ports"]]


def test_services_of_the_compose_file_share_nothing_but_files_that_are_there() -> None:
    volumes = [volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]]
    files = [volume for volume in volumes if volume.startswith(".")]
    folders = [volume for volume in volumes if not volume.startswith(".")]
    assert [file for file in files if not (COMPOSE / file).exists()] == []
    assert sorted(folders) == sorted(SERVICES)
    published = [port for service in NODES.values() for port in service["ports"]]
    assert len({port.rpartition(":")[0] for port in published}) == len(published)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_the_log_takes_its_configuration(name: str) -> None:
    assert BINARY is not None
    done = subprocess.run(
        [BINARY, "-t", "-c", str(COMPOSE / "nats.conf")],
        env={**os.environ, **SERVERS[name]["environment"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (COMPOSE / "nats.conf").read_text()
    assert "sync_interval: always" in text
    assert set(re.findall(r"nats://([\w-]+):6222", text)) == set(SERVERS)


def test_images_have_the_extra_of_their_log() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {service["build"]["args"]["EXTRAS"] for service in NODES.values()}
    assert asked == {"nats"} <= set(extras)
    assert 'ARG EXTRAS=""' in (ROOT / "deploy" / "container" / "Containerfile").read_text()


@pytest.mark.parametrize("number", range(STATEFUL["replicas"]))
def test_a_pod_has_a_configuration(tmp_path: Path, number: int) -> None:
    pod, secret = f"stompbox-{number}", KUBERNETES["Secret", "stompbox"]["stringData"]
    environment = {}
    for variable in CONTAINER["env"]:
        if "value" in variable:
            environment[variable["name"]] = filled(variable["value"], {"POD_NAME": pod})
        elif "secretKeyRef" in variable["valueFrom"]:
            environment[variable["name"]] = secret[variable["valueFrom"]["secretKeyRef"]["key"]]
    users = environment["STOMPBOX_USER"].replace("$argon2id$…", "a")
    path = tmp_path / "stompbox.toml"
    path.write_text(KUBERNETES["ConfigMap", "stompbox"]["data"]["stompbox.toml"])
    configuration = configured(path, {**environment, "STOMPBOX_USER": users})
    table = configuration.cluster
    assert (table.node, table.advertise) == (pod, f"{pod}.{STATEFUL['serviceName']}:61700")
    assert table.advertise in table.nodes and len(table.nodes) == STATEFUL["replicas"]
    servers, monitors = hosts_of(table.log or "")
    assert (servers, monitors) == (["nats"], [f"nats-{number}.nats-headless" for number in range(3)])


def test_what_the_manifests_name_is_there() -> None:
    labels = STATEFUL["template"]["metadata"]["labels"]
    assert STATEFUL["selector"]["matchLabels"] == labels
    ports = {port["name"] for port in CONTAINER["ports"]}
    services = [found["spec"] for (kind, _), found in KUBERNETES.items() if kind == "Service"]
    assert ("Service", STATEFUL["serviceName"]) in KUBERNETES
    for service in services:
        assert service["selector"] == labels
        assert {port["targetPort"] for port in service["ports"]} <= ports
    assert KUBERNETES["PodDisruptionBudget", "stompbox"]["spec"]["selector"]["matchLabels"] == labels
    mounted = {mount["name"] for mount in CONTAINER["volumeMounts"]}
    claimed = {claim["metadata"]["name"] for claim in STATEFUL["volumeClaimTemplates"]}
    assert mounted == {volume["name"] for volume in POD["volumes"]} | claimed


def test_the_servers_of_the_chart_sync_each_write() -> None:
    values: dict[str, Any] = yaml.safe_load(
        (ROOT / "deploy" / "kubernetes" / "nats-values.yaml").read_text()
    )["config"]
    assert values["cluster"] == {"enabled": True, "replicas": 3}
    assert values["monitor"]["enabled"]
    assert values["jetstream"]["enabled"]
    assert values["jetstream"]["merge"]["sync_interval"] == "always"


def test_nodes_of_the_compose_file_start_when_their_log_answers() -> None:
    """A node that finds no log ends, and `docker compose up --wait` would take that for the end of it."""
    for node in NODES.values():
        assert node["depends_on"] == {name: {"condition": "service_healthy"} for name in SERVERS}
    for server in SERVERS.values():
        assert re.search(r"^http: 0\.0\.0\.0:8222$", (COMPOSE / "nats.conf").read_text(), re.M)
        assert "http://127.0.0.1:8222/healthz" in server["healthcheck"]["test"]
