"""Helm's own code lints and renders the chart, and manifests match Kubernetes' schemas.

No package has the schemas of the Prometheus operator. So the test checks that its two resources
have the fields that the operator's reference requires.
"""

import base64
import gzip
import importlib.util
import json
import subprocess
import sys
import tomllib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from alerts.notify.configuration import load_configuration
from analysis.sign_in_file import load_sign_in
from cli.main import tailspan
from cli.options.settings import all_settings
from dashboards.boards import BOARDS
from exporters.definitions.probe_series import PROBE_LABELS
from exporters.definitions.series import ALL
from exporters.definitions.series_types import MetricSeries

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
OPERATORS = "monitoring.coreos.com/v1"
VERSIONS = ("1.31", "1.37")
EXAMPLES = {path.stem: path.read_text() for path in sorted(CHART.glob("examples/*.yaml"))}
CASES = {
    "defaults": "{}",
    "monitored": "{monitoring: {enabled: true}, networkPolicy: {enabled: false}}",
    "pod-starts": "{podStarts: {serviceAccounts: [{namespace: inference, name: vllm}]}}",
    **EXAMPLES,
}
BY_THE_CHART = {
    *("host", "grpc-port", "http-port", "metrics-port", "explorer-port", "no-explorer", "sign-in"),
    *("base-path", "database", "state-url", "token-file", "tls-cert", "tls-key", "insecure-bind"),
}
OF_THE_OPERATOR = {"container", "endpoint", "instance", "job", "namespace", "pod", "service"}
"""Labels that the Prometheus operator adds to each metric of a ServiceMonitor. If a metric already
has such a label, Prometheus renames it to exported_…."""
UNSUPPORTED = {"tls-client-ca"}
"""With mutual TLS, the kubelet's probes would need a certificate."""

needs_helm = pytest.mark.skipif(
    importlib.util.find_spec("helm_python") is None,
    reason="Helm is not installed: pip install helm-python-sdk (make test-real does this)",
)
each_case = pytest.mark.parametrize("case", CASES)


def _helm(tmp_path: Path, verb: str, values: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "values.yaml").write_text(values)
    words = [sys.executable, "-m", "rig.helm", verb, str(tmp_path / "values.yaml")]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def rendered(values: str) -> list[dict[str, Any]]:
        done = _helm(tmp_path_factory.mktemp("values"), "template", values)
        assert done.returncode == 0, done.stderr
        return [
            document
            for name, text in json.loads(done.stdout).items()
            if name.endswith(".yaml")
            for document in yaml.safe_load_all(text)
            if document is not None
        ]

    return rendered


def _of_kind(manifests: list[dict[str, Any]], kind: str, name: str = "tailspan") -> dict[str, Any]:
    [found] = [
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def _pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each["spec"]["template"]
        for each in manifests
        if each["kind"] in ("StatefulSet", "Deployment")
    ]


def _configuration(manifests: list[dict[str, Any]]) -> dict[str, str]:
    data: dict[str, str] = _of_kind(manifests, "ConfigMap", "tailspan-configuration")["data"]
    return data


def _messages(tmp_path: Path, values: str) -> str:
    done = _helm(tmp_path, "template", values)
    assert done.returncode == 1, done.stdout
    return done.stderr


@needs_helm
@each_case
def test_helm_lint_finds_nothing(case: str, tmp_path: Path) -> None:
    done = _helm(tmp_path, "lint", CASES[case])
    found = json.loads(done.stdout)
    assert found["errors"] == []
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


@needs_helm
@each_case
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_match_kubernetes_schemas(case: str, version: str, render: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about how it finds its files
        validate = pytest.importorskip("kubernetes_validate").validate
        for manifest in render(CASES[case]):
            if manifest["apiVersion"] != OPERATORS:
                validate(manifest, version, strict=True)


@needs_helm
@each_case
def test_every_pod_meets_the_restricted_standard(case: str, render: Any) -> None:
    """The standard is Kubernetes' "restricted" Pod Security Standard."""
    for pod in _pods(render(CASES[case])):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@needs_helm
@each_case
def test_services_ports_and_volumes_fit_the_pods(case: str, render: Any) -> None:
    manifests = render(CASES[case])
    ports = {}
    for pod in _pods(manifests):
        [container] = pod["spec"]["containers"]
        named = {port["name"] for port in container["ports"]}
        ports[pod["metadata"]["labels"]["app.kubernetes.io/component"]] = named
        probes = [container[f"{each}Probe"] for each in ("startup", "readiness", "liveness")]
        assert {probe["httpGet"]["port"] for probe in probes} <= named
        volumes = {each["name"] for each in pod["spec"]["volumes"]} | {"data"}
        assert {each["name"] for each in container["volumeMounts"]} == volumes
    for name in ("tailspan", "tailspan-explorer"):
        service = _of_kind(manifests, "Service", name)["spec"]
        used = {port["targetPort"] for port in service["ports"]}
        assert used <= ports[service["selector"]["app.kubernetes.io/component"]]


@needs_helm
@each_case
def test_tailspan_accepts_the_configuration(case: str, render: Any, tmp_path: Path) -> None:
    """The code that runs in a pod reads the settings, the sign-in and the channels."""
    manifests = render(CASES[case])
    texts = _configuration(manifests)
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace("/etc/tailspan-secrets", str(tmp_path)))
    for secret in ("tailspan-sign-in/client-secret", "tailspan-slack/url"):
        (tmp_path / secret).parent.mkdir()
        (tmp_path / secret).write_text("https://hooks.example.org/a-secret")
    words = ["settings", "--config", str(tmp_path / "tailspan.toml"), "--format", "json"]
    done = CliRunner().invoke(tailspan, words)
    assert done.exit_code == 0, done.output
    if "sign-in.yaml" in texts:
        assert load_sign_in(tmp_path / "sign-in.yaml", {}).url == "https://tailspan.example.org"
    if "notify.yaml" in texts:
        [container] = _pods(manifests)[0]["spec"]["containers"]
        environ = {each["name"]: each.get("value", "") for each in container["env"]}
        configuration = load_configuration(tmp_path / "notify.yaml", environ)
        assert configuration.channels
        assert configuration.explorer_url == "https://tailspan.example.org"


@needs_helm
def test_one_machine_has_one_pod_with_its_explorer_and_a_volume(render: Any) -> None:
    manifests = render(CASES["defaults"])
    assert len(_pods(manifests)) == 1
    spec = _of_kind(manifests, "StatefulSet")["spec"]
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert "no-explorer = false" in _configuration(manifests)["tailspan.toml"]
    assert not [each for each in manifests if each["kind"] == "PodDisruptionBudget"]


@needs_helm
def test_a_long_migration_does_not_restart_the_collector(render: Any) -> None:
    """The collector answers probes after the migration. A restart would begin it again."""
    for pod in _pods(render(CASES["defaults"])):
        [container] = pod["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["failureThreshold"] * probe.get("periodSeconds", 10) >= 12 * 3_600


@needs_helm
def test_several_collectors_share_postgresql_and_have_one_explorer(render: Any) -> None:
    manifests = render(CASES["team"])
    collectors = _of_kind(manifests, "StatefulSet")["spec"]
    assert collectors["replicas"] == 3
    assert "volumeClaimTemplates" not in collectors
    assert _of_kind(manifests, "Deployment", "tailspan-explorer")["spec"]["replicas"] == 1
    budget = _of_kind(manifests, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    labels = collectors["template"]["metadata"]["labels"].items()
    assert budget["selector"]["matchLabels"].items() <= labels
    for pod in _pods(manifests):
        [container] = pod["spec"]["containers"]
        urls = {each["name"]: each.get("valueFrom") for each in container["env"]}
        secret = {"name": "tailspan-database", "key": "url"}
        assert urls["TAILSPAN_DATABASE_URL"] == {"secretKeyRef": secret}
    # Access control is complete, so no port is open without credentials.
    assert "insecure-bind = false" in _configuration(manifests)["tailspan.toml"]


@needs_helm
def test_a_gateway_finds_each_collector(render: Any) -> None:
    names = {each["metadata"]["name"] for each in render(CASES["defaults"])}
    assert "tailspan-collectors" not in names
    manifests = render(CASES["team"])
    service = _of_kind(manifests, "Service", "tailspan-collectors")
    assert service["spec"]["clusterIP"] == "None"
    labels = _of_kind(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    # Prometheus would scrape each collector twice.
    monitor = _of_kind(manifests, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert not monitor.items() <= service["metadata"]["labels"].items()


@needs_helm
def test_several_collectors_share_clickhouse_with_a_separate_state_database(render: Any) -> None:
    manifests = render(
        "{collectors: 2, database: {type: clickhouse, existingSecret: rows},"
        " stateDatabase: {existingSecret: state}}"
    )
    assert _of_kind(manifests, "StatefulSet")["spec"]["replicas"] == 2
    for pod in _pods(manifests):
        [container] = pod["spec"]["containers"]
        secrets = {
            each["name"]: each["valueFrom"]["secretKeyRef"]["name"]
            for each in container["env"]
            if "valueFrom" in each
        }
        assert secrets == {"TAILSPAN_DATABASE_URL": "rows", "TAILSPAN_STATE_URL": "state"}


@needs_helm
def test_the_explorers_path_reaches_its_probe_and_its_settings(render: Any) -> None:
    manifests = render(CASES["fleet"])
    explorer = _of_kind(manifests, "Deployment", "tailspan-explorer")["spec"]["template"]["spec"]
    probe = explorer["containers"][0]["readinessProbe"]["httpGet"]
    assert probe["path"] == "/tailspan/_stcore/health"
    settings = _configuration(manifests)["tailspan.toml"]
    assert 'base-path = "/tailspan"' in settings
    assert "max-rate = 1024\n" in settings
    [rule] = _of_kind(manifests, "Ingress")["spec"]["rules"]
    assert rule["http"]["paths"][0]["path"] == "/tailspan"


@needs_helm
def test_the_explorer_accepts_the_host_of_its_address(render: Any) -> None:
    """Another proxy than the chart's Ingress can publish the explorer."""
    manifests = render("{explorer: {url: 'https://ops.example.org/tailspan'}}")
    settings = tomllib.loads(_configuration(manifests)["tailspan.toml"])
    assert "ops.example.org" in settings["allowed-host"]
    assert settings["base-path"] == "/tailspan"
    rules = _of_kind(manifests, "NetworkPolicy")["spec"]["ingress"]
    [proxies] = [rule["from"] for rule in rules if {"port": "explorer"} in rule["ports"]]
    [proxy] = [each["namespaceSelector"]["matchLabels"] for each in proxies]
    assert proxy == {"kubernetes.io/metadata.name": "ingress-nginx"}


@needs_helm
@pytest.mark.parametrize(
    ("values", "address"),
    [
        ("{}", "http://127.0.0.1:8501"),
        (
            "{explorer: {url: 'https://ops.example.org/tailspan'}}",
            "https://ops.example.org/tailspan",
        ),
        (EXAMPLES["fleet"], "https://ops.example.org/tailspan"),
    ],
)
def test_the_notes_end_with_the_explorers_address(
    values: str, address: str, tmp_path: Path
) -> None:
    done = _helm(tmp_path, "template", values)
    assert done.returncode == 0, done.stderr
    [notes] = [text for name, text in json.loads(done.stdout).items() if name.endswith("NOTES.txt")]
    assert notes.split()[-1] == address


@needs_helm
def test_a_change_of_the_configuration_restarts_the_pods(render: Any) -> None:
    sums = {
        pod["metadata"]["annotations"]["checksum/configuration"]
        for values in ("{settings: {keep-rows: 1d}}", "{settings: {keep-rows: 2d}}")
        for pod in _pods(render(values))
    }
    assert len(sums) == 2


@needs_helm
def test_the_operator_finds_the_metrics_and_the_rules(render: Any) -> None:
    manifests = render(CASES["team"])
    monitor = _of_kind(manifests, "ServiceMonitor")
    assert monitor["apiVersion"] == OPERATORS
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"]["name"] == "tailspan-tokens"
    service = _of_kind(manifests, "Service")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    for name in ("tailspan", "operating"):
        rule = _of_kind(manifests, "PrometheusRule", f"tailspan-{name}")
        assert rule["metadata"]["labels"]["release"] == "prometheus"
        rules = (ROOT / "alerts" / "rules" / f"{name}.yaml").read_text()
        moved = rules.replace("http://127.0.0.1:8501", "https://tailspan.example.org")
        assert rule["spec"] == yaml.safe_load(moved)
        # Prometheus counts the objectives on Tailspan itself, so their alerts have no link.
        assert (moved != rules) == (name == "tailspan")


@needs_helm
def test_the_operator_replaces_no_label_of_tailspan(render: Any) -> None:
    """Without its own label `endpoint`, an endpoint that works would hide one that is down."""
    [endpoint] = _of_kind(render(CASES["monitored"]), "ServiceMonitor")["spec"]["endpoints"]
    rules = endpoint.get("relabelings", [])
    dropped = {each["regex"] for each in rules if each["action"] == "labeldrop"}
    labels = {label for each in ALL if isinstance(each, MetricSeries) for label in each.labels}
    assert set(PROBE_LABELS) <= labels
    assert labels & OF_THE_OPERATOR <= dropped


@needs_helm
def test_own_rules_replace_those_of_the_built_in_objectives(render: Any) -> None:
    preset = str(ROOT / "alerts" / "presets" / "voice.yaml")
    rules = CliRunner().invoke(tailspan, ["slo", "rules", preset]).stdout
    values = {
        "settings": {"objectives": ["voice.yaml"]},
        "monitoring": {"enabled": True, "rules": {"tailspan": rules}},
    }
    manifests = render(json.dumps(values))
    own = _of_kind(manifests, "PrometheusRule", "tailspan-tailspan")["spec"]
    assert own == yaml.safe_load(rules)
    slos = {rule.get("labels", {}).get("slo") for group in own["groups"] for rule in group["rules"]}
    assert "chat" not in slos
    operating = (ROOT / "alerts" / "rules" / "operating.yaml").read_text()
    of_tailspan = _of_kind(manifests, "PrometheusRule", "tailspan-operating")["spec"]
    assert of_tailspan == yaml.safe_load(operating)


@needs_helm
def test_listed_namespaces_may_read_the_api(render: Any) -> None:
    values = "{networkPolicy: {apiNamespaces: [argo-rollouts]}}"
    rules = _of_kind(render(values), "NetworkPolicy")["spec"]["ingress"]
    [senders] = [rule["from"] for rule in rules if {"port": "metrics"} in rule["ports"]]
    allowed = {
        each["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for each in senders
    }
    assert allowed == {"monitoring", "argo-rollouts"}


@needs_helm
def test_only_listed_service_accounts_may_read_pods_and_events(render: Any) -> None:
    kinds = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    assert not [each for each in render(CASES["defaults"]) if each["kind"] in kinds]
    role, binding = (each for each in render(CASES["pod-starts"]) if each["kind"] in kinds)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "vllm", "namespace": "inference"}
    ]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {"inference"}


@needs_helm
def test_every_dashboard_is_delivered_and_links_to_the_explorer(render: Any) -> None:
    texts = {
        name: text
        for each in render(CASES["team"])
        if "grafana_dashboard" in each["metadata"]["labels"]
        for name, text in each["data"].items()
    }
    assert set(texts) == {f"{board.uid}.json" for board in BOARDS}
    for text in texts.values():
        assert json.loads(text)["uid"]
        assert "https://tailspan.example.org" in text
        assert "127.0.0.1" not in text


@needs_helm
def test_every_object_fits_into_kubernetes(render: Any) -> None:
    """`kubectl apply` stores each object in an annotation, whose limit is 256 KiB. The limit of
    the release's Secret is 1 MiB."""
    manifests = render(CASES["team"])
    assert max(len(json.dumps(each)) for each in manifests) < 250_000
    # Helm's Secret has the chart's files in base64 and the manifests. It is compressed and again
    # encoded in base64.
    files = [path.read_bytes() for path in CHART.glob("**/*") if path.is_file()]
    for link in ("dashboards", "rules"):
        files += [path.read_bytes() for path in (CHART / link).iterdir()]
    release = b"".join([*map(base64.b64encode, files), json.dumps(manifests).encode()])
    assert len(base64.b64encode(gzip.compress(release))) < 1_000_000


@needs_helm
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            "{collectors: 3}",
            "collectors is 3, but database.type is sqlite, which allows one collector. Set"
            " collectors: 1, or database.type: postgresql with database.existingSecret.",
        ),
        (
            "{collectors: 2, database: {type: clickhouse, existingSecret: a}}",
            "collectors is 2, but without stateDatabase.existingSecret, database.type clickhouse"
            " allows one collector",
        ),
        (
            "{stateDatabase: {existingSecret: a}}",
            'stateDatabase.existingSecret is "a", but database.type is sqlite',
        ),
        ("{database: {type: postgresql}}", 'Set it to the name of a Secret whose key "url"'),
        ("{database: {existingSecret: a}}", 'database.existingSecret is "a", but database.type is'),
        ("{ingress: {host: a.example.org}}", "everyone who reaches the Ingress could read"),
        ("{signIn: {issuer: https://login.example.org}}", "also set ingress.host"),
        (
            "{signIn: {issuer: https://a.b, existingSecret: a, allow: ['*']},"
            " ingress: {host: a.example.org}}",
            "the explorer's address is not https",
        ),
        (
            "{explorer: {url: https://a.example.org/b},"
            " ingress: {host: a.example.org, withoutSignIn: true}}",
            'ingress.path is "/", but the path of explorer.url "https://a.example.org/b" differs',
        ),
        (
            "{monitoring: {enabled: true}, settings: {objectives: [a.yaml]}}",
            "monitoring.rules.tailspan is empty",
        ),
        ("{files: {tailspan.toml: a}}", 'files contains "tailspan.toml", which the chart writes'),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, message: str, tmp_path: Path) -> None:
    assert message in _messages(tmp_path, values)


@needs_helm
def test_helm_checks_the_schema(tmp_path: Path) -> None:
    assert "collector" in _messages(tmp_path, "{collector: 3}")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ("{collector: 3}", "'collector'"),
        ("{collectors: three}", "/collectors"),
        ("{collectors: 0}", "/collectors"),
        ("{database: {type: mysql}}", "/database/type"),
        ("{storage: {size: many}}", "/storage/size"),
        ("{settings: {keep-row: 7d}}", "'keep-row'"),
        ("{settings: {host: 10.0.0.1}}", "'host'"),
        ("{settings: {scrape: http://a:1}}", "/settings/scrape"),
        ("{settings: {max-rate: fast}}", "/settings/max-rate"),
        ("{secrets: [../token]}", "/secrets/0"),
        ("{files: {a/b: text}}", "'a/b'"),
        ("{ingress: {host: 'a b'}}", "/ingress/host"),
        ("{tokens: {existingSecret: [1]}}", "/tokens/existingSecret"),
        ("{podStarts: {serviceAccounts: [{namespace: a}]}}", "/podStarts/serviceAccounts/0"),
    ],
)
def test_the_schema_refuses_a_malformed_value(values: str, key: str) -> None:
    validator = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    [error] = validator.iter_errors(yaml.safe_load(values))
    place = "".join(f"/{each}" for each in error.absolute_path)
    assert key == place or key in error.message


def _keys(values: Any, schema: Any, path: str = "") -> list[str]:
    if "properties" not in schema or path == "settings":
        return []
    known = set(schema["properties"]) - {"global"}
    found = [f"{path}.{key}" for key in known ^ set(values)]
    for key in known & set(values):
        found += _keys(values[key], schema["properties"][key], key)
    return found


def test_the_schema_has_the_keys_of_the_values() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    for text in EXAMPLES.values():
        jsonschema.validate(yaml.safe_load(text), SCHEMA)
    assert _keys(VALUES, SCHEMA) == []


def test_the_schema_has_every_setting_with_its_type() -> None:
    settings = {each.key: each for each in all_settings()}
    schema = SCHEMA["properties"]["settings"]["properties"]
    assert set(schema) == set(settings) - BY_THE_CHART - UNSUPPORTED
    for key, type_ in schema.items():
        setting, kind = settings[key], type_["type"]
        assert (kind == "boolean") == setting.is_flag, key
        assert (kind == "array") == setting.multiple, key
        number = {"WholeRange": "integer", "FiniteRange": "number"}.get(type(setting.type).__name__)
        assert kind in ("boolean", "array") or kind == (number or "string"), key


def test_the_chart_and_the_image_have_the_version_of_tailspan() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
