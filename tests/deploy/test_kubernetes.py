"""The manifests match Kubernetes' schemas (1.31 and newer, from `kubernetes-validate`).

No package contains the schemas of the Prometheus operator, so the test checks its two resources for
the fields that the operator's reference requires.
"""

import json
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.boards import BOARDS
from rig.rule_resource import resource

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OPERATORS = "monitoring.coreos.com/v1"
VERSIONS = ("1.31", "1.34", "1.37")

MANIFESTS: list[dict[str, Any]] = [
    document
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    if name.endswith(".yaml")
    for document in yaml.safe_load_all((FOLDER / name).read_text())
]
OF_KIND = {each["kind"]: each for each in MANIFESTS}
CONTAINER = OF_KIND["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_are_of_kubernetes_schemas(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about how it finds its files
        validate = pytest.importorskip("kubernetes_validate").validate
        for manifest in MANIFESTS:
            if manifest["apiVersion"] != OPERATORS:
                validate(manifest, version, strict=True)


def test_the_scrape_finds_the_service() -> None:
    monitor, service = OF_KIND["ServiceMonitor"], OF_KIND["Service"]
    assert monitor["apiVersion"] == OPERATORS
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    named = {port["name"] for port in service["spec"]["ports"]}
    assert all(endpoint["port"] in named for endpoint in monitor["spec"]["endpoints"])


def test_the_rules_are_those_of_today() -> None:
    rules = (ROOT / "alerts" / "rules" / "tailspan.yaml").read_text()
    assert (FOLDER / "rules.yaml").read_text() == resource(rules), "run make generate"
    rule = OF_KIND["PrometheusRule"]
    assert rule["apiVersion"] == OPERATORS
    assert rule["spec"]["groups"] == yaml.safe_load(rules)["groups"]


def test_the_pod_keeps_the_restricted_standard() -> None:
    """The namespace enforces Kubernetes' Pod Security Standards."""
    pod = OF_KIND["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_ports_are_named_as_they_are_used() -> None:
    named = {port["name"] for port in CONTAINER["ports"]}
    used = {port["targetPort"] for port in OF_KIND["Service"]["spec"]["ports"]}
    used |= {CONTAINER[f"{each}Probe"]["httpGet"]["port"] for each in ("readiness", "liveness")}
    for rule in OF_KIND["NetworkPolicy"]["spec"]["ingress"]:
        used |= {port["port"] for port in rule["ports"]}
    assert used == named


def test_every_dashboard_is_delivered() -> None:
    """All dashboards together fit into a ConfigMap."""
    [made] = yaml.safe_load((ROOT / "dashboards" / "kustomization.yaml").read_text())[
        "configMapGenerator"
    ]
    assert made["files"] == sorted(f"generated/{board.uid}.json" for board in BOARDS)
    texts = [(ROOT / "dashboards" / file).read_text() for file in made["files"]]
    assert all(json.loads(text)["uid"] for text in texts)
    assert sum(map(len, texts)) < 900_000


@pytest.mark.real
def test_address_namespace_and_labels_are_values(tmp_path: Path) -> None:
    """kubectl replaces the values everywhere; the file of values itself is not applied."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("there is no kubectl")
    for folder in ("deploy", "dashboards"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    here = tmp_path / "deploy" / "kubernetes"
    values = here / "values.env"
    values.write_text("explorer_url=https://tailspan.example.org\nprometheus_namespace=prom\n")
    kustomization = here / "kustomization.yaml"
    kustomization.write_text(
        kustomization.read_text()
        .replace("namespace: tailspan\n", "namespace: watch\n")
        .replace("part-of: tailspan}", "part-of: tailspan, release: prometheus}")
    )
    done = subprocess.run(
        [program, "kustomize", str(here)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in found.values())
    assert found.pop("Namespace")["metadata"]["name"] == "watch"
    assert {each["metadata"]["namespace"] for each in found.values()} == {"watch"}
    links = [
        rule["annotations"]["dashboard_url"]
        for group in found["PrometheusRule"]["spec"]["groups"]
        for rule in group["rules"]
        if "annotations" in rule
    ]
    assert links
    assert all(link.startswith("https://tailspan.example.org/?") for link in links)
    assert "metadata.name: prom\n" in yaml.safe_dump(found["NetworkPolicy"])
    assert "tailspan-values" not in done.stdout
