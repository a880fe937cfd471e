import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROFILES = sorted({name for each in SERVICES.values() for name in each.get("profiles", [])})


def _users(service: dict[str, Any]) -> str:
    """Return a service's user, from the Compose file or from its stage in the Dockerfile."""
    if "user" in service:
        return str(service["user"])
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    [stage] = [each for each in stages if f" AS {service['build']['target']}\n" in each]
    return next(line.split()[1] for line in stage.splitlines() if line.startswith("USER "))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_restricted(name: str) -> None:
    """Loopback ports, no root, a read-only file system, a version, a health check, real mounts."""
    service = SERVICES[name]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert _users(service).split(":")[0] not in ("0", "root", "")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is (name not in ("vllm", "clickhouse"))
    assert re.search(r":[^:/]*\d[^:/]*$", service["image"]), service["image"]
    assert service["healthcheck"].get("disable") or service["healthcheck"]["test"]
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
            assert volume.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_no_file_has_a_password() -> None:
    grafana = SERVICES["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in grafana


def test_grafana_and_prometheus_have_the_same_interval() -> None:
    """Grafana computes `$__rate_interval` from its configured scrape interval."""
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())
    sources = yaml.safe_load((ROOT / "deploy" / "grafana" / "datasources.yaml").read_text())
    datasource = {each["uid"]: each for each in sources["datasources"]}["tailspan-prometheus"]
    assert datasource["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def test_clickhouse_has_the_tested_version_and_creates_its_user() -> None:
    """The tests run the same version of ClickHouse in their own process (chdb)."""
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]
    )
    tested = ".".join(pins["chdb-core"].split(".")[:2])
    service = SERVICES["clickhouse"]
    assert service["image"] == f"clickhouse/clickhouse-server:{tested}"
    assert service["environment"]["CLICKHOUSE_USER"] == "tailspan"
    assert "CLICKHOUSE_SKIP_USER_SETUP" not in service["environment"]


def test_the_gateways_queue_is_on_a_writable_disk() -> None:
    gateway = yaml.safe_load((ROOT / "deploy" / "gateway.yaml").read_text())
    (exporter,) = gateway["exporters"].values()
    storage = exporter["sending_queue"]["storage"]
    assert storage in gateway["service"]["extensions"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
    service, owner = SERVICES["gateway"], SERVICES["gateway-disk"]
    folder = gateway["extensions"][storage]["directory"]
    assert any(
        each.startswith("gateway:") and folder.startswith(each.partition(":")[2])
        for each in service["volumes"]
    )
    assert service["user"].split(":")[0] == _users(owner)
    assert "gateway-disk" in service["depends_on"]


@pytest.mark.real
@pytest.mark.parametrize("profile", ["", *PROFILES])
def test_docker_compose_accepts_the_configuration(profile: str) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("there is no docker-compose: apt-get install docker-compose")
    words = [program, *(("--profile", profile) if profile else ()), "config", "--quiet"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_prometheus_and_alertmanager_take_their_configuration(tmp_path: Path) -> None:
    """promtool and amtool check the files, with local paths instead of the container's."""
    for program in ("promtool", "amtool"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}: make test-real installs it")
    text = (ROOT / "deploy" / "prometheus.yaml").read_text()
    (tmp_path / "prometheus.yaml").write_text(
        text.replace("/etc/prometheus/rules", str(ROOT / "alerts" / "rules"))
    )
    for words in (
        ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")],
        ["amtool", "check-config", str(ROOT / "deploy" / "alertmanager.yaml")],
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_contains_exactly_the_parts() -> None:
    """The builder needs the wheel's sources, and the image contains them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = {
        line.split()[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and line.split()[1] == line.split()[2]
    }
    assert copied == parts | {"instrumentation", "deploy/requirements.lock"}
    sent = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied <= sent
