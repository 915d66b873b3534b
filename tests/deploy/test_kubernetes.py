"""deploy/kubernetes: every manifest fits Kubernetes' own schema, and they fit to each other."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from goodwatch import __version__
from goodwatch.app import boarding
from goodwatch.app.config import load
from goodwatch.app.engines import known_engines
from tests.deploy.files import DEPLOY, complaints, documents, schema

FOLDER: Final = DEPLOY / "kubernetes"
(KUSTOMIZATION,) = documents(FOLDER / "kustomization.yaml")
NAMES: Final = [*KUSTOMIZATION["resources"], "servicemonitor.yaml"]
OBJECTS: Final[list[dict[str, Any]]] = [one for name in NAMES for one in documents(FOLDER / name)]
SCHEMAS: Final = schema("kubernetes-1.33.json")
#: kinds of operators, which are not Kubernetes' own
CUSTOM: Final = {"ServiceMonitor", "GrafanaDashboard"}


def held_to(kind: str) -> dict[str, Any]:
    return {**SCHEMAS["kinds"][kind], "$schema": SCHEMAS["$schema"], "$defs": SCHEMAS["$defs"]}


def the(kind: str) -> dict[str, Any]:
    (one,) = [found for found in OBJECTS if found["kind"] == kind]
    return one


POD: Final = the("StatefulSet")["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.parametrize("made", [o for o in OBJECTS if o["kind"] not in CUSTOM], ids=lambda o: o["kind"])
def test_a_manifest_fits_the_schema_of_its_kind(made: dict[str, Any]) -> None:
    assert complaints(made, held_to(made["kind"])) == []


def test_the_schema_finds_a_wrong_key_deep_inside() -> None:
    broken = json.loads(json.dumps(the("StatefulSet")))
    broken["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    assert complaints(broken, held_to("StatefulSet"))


def test_every_file_of_the_folder_is_used_or_named() -> None:
    named = (FOLDER / "kustomization.yaml").read_text()
    assert [
        path.name for path in FOLDER.iterdir() if path.name not in named and path.name != "kustomization.yaml"
    ] == []


def test_services_policies_and_monitors_mean_the_pod() -> None:
    labels = the("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        the("StatefulSet")["spec"]["selector"]["matchLabels"], the("Service")["spec"]["selector"],
        the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]  # fmt: skip
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert (
        the("ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= the("Service")["metadata"]["labels"].items()
    )


def test_ports_are_named_the_same_everywhere() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert {p["targetPort"]: p["port"] for p in the("Service")["spec"]["ports"]} == ports
    assert {p["port"] for rule in the("NetworkPolicy")["spec"]["ingress"] for p in rule["ports"]} == set(ports)
    assert {one["port"] for one in the("ServiceMonitor")["spec"]["endpoints"]} <= set(ports)
    probed = [CONTAINER[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {(one.get("httpGet") or one["tcpSocket"])["port"] for one in probed} == {"http"}


def test_what_is_mounted_is_a_volume_and_the_service_account_is_bound() -> None:
    volumes = {one["name"] for one in POD["volumes"]}
    volumes |= {one["metadata"]["name"] for one in the("StatefulSet")["spec"]["volumeClaimTemplates"]}
    assert {one["name"] for one in CONTAINER["volumeMounts"]} == volumes
    (subject,) = the("ClusterRoleBinding")["subjects"]
    assert (subject["name"], subject["namespace"]) == (POD["serviceAccountName"], KUSTOMIZATION["namespace"])
    assert the("ClusterRoleBinding")["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    (config,) = KUSTOMIZATION["configMapGenerator"]
    assert next(v for v in POD["volumes"] if v["name"] == "config")["configMap"]["name"] == config["name"]


def test_discovery_gets_just_the_rights_that_the_documentation_names() -> None:
    text = (DEPLOY.parent / "docs" / "discovery.md").read_text()
    rules = yaml.safe_load(text[text.index("rules:\n") : text.index("```\n\ngoodwatch speaks")])["rules"]
    assert the("ClusterRole")["rules"] == rules


def test_the_pod_may_do_nothing_that_it_does_not_need() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    user = re.search(r"^USER (\d+)$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert POD["securityContext"]["runAsUser"] == int(user[1])
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip


def test_the_image_is_this_version() -> None:
    assert KUSTOMIZATION["images"][0]["newTag"] == __version__


def test_goodwatch_takes_the_configuration_where_the_tokens_are(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("read", "ingest", "admin"):
        (secrets / name).write_text(f"{name}-{'x' * 40}")
    mounted = next(one["mountPath"] for one in CONTAINER["volumeMounts"] if one["name"] == "tokens")
    text = (FOLDER / "goodwatch.yaml").read_text()
    (tmp_path / "goodwatch.yaml").write_text(text.replace(mounted, str(secrets)))
    settings = load(tmp_path / "goodwatch.yaml", engines=known_engines(), environ={})
    assert {token.role for token in settings.auth.tokens} == {"read", "ingest", "admin"}
    assert settings.kubernetes_sd
    assert not settings.insecure
    data = next(one["mountPath"] for one in CONTAINER["volumeMounts"] if one["name"] == "data")
    assert str(settings.data_dir) == data
    key = the("ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert key["name"] == next(v for v in POD["volumes"] if v["name"] == "tokens")["secret"]["secretName"]
    assert key["key"] in {"read"}


def test_boards_for_the_cluster_fit_too(tmp_path: Path) -> None:
    files = boarding.files_of(boarding.build_boards(boarding.options_of(None, ("vllm",))), ("configmap", "operator"))
    maps = list(yaml.safe_load_all(files["kubernetes/configmaps.yaml"]))
    objects = list(yaml.safe_load_all(files["kubernetes/grafanadashboards.yaml"]))
    assert [text for one in maps for text in complaints(one, held_to("ConfigMap"))] == []
    for one in maps:  # etcd takes objects of 1.5 MiB at most, and a ConfigMap's data of 1 MiB
        assert len(next(iter(one["data"].values())).encode()) < 1_000_000
    for one in objects:
        assert (one["apiVersion"], one["kind"]) == ("grafana.integreatly.org/v1beta1", "GrafanaDashboard")
        assert {"instanceSelector", "json"} <= set(one["spec"])
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", one["metadata"]["name"])
        assert json.loads(one["spec"]["json"])["uid"]
