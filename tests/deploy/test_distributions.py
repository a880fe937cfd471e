import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
EXTRAS = ("explorer", "postgresql", "clickhouse", "gpu", "dashboards", "mcp", "probe", "sign-in")
LOCK = ROOT / "deploy" / "requirements.lock"
PATIENCE_S = 90.0


def _project(folder: Path = ROOT) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def _constraints() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if "==" in line)
    return {_name(name): Version(version) for name, version in pins}


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed() -> Iterator[Requirement]:
    for project in (_project(), _project(ROOT / "instrumentation")):
        extras = project.get("optional-dependencies", {})
        for text in [
            *project["dependencies"],
            *(each for e in EXTRAS for each in extras.get(e, ())),
        ]:
            if not text.startswith("tailspan"):
                yield Requirement(text)


@pytest.mark.parametrize("needed", list(_needed()), ids=str)
def test_a_dependency_has_a_lower_bound_that_the_tested_version_meets(needed: Requirement) -> None:
    """Without a lower bound, pip may install a release that is ten years old."""
    assert any(each.operator == ">=" for each in needed.specifier), needed
    assert _constraints()[_name(needed.name)] in needed.specifier


def test_the_extra_all_includes_every_extra_of_users() -> None:
    extras = _project()["optional-dependencies"]
    assert extras["all"] == [f"tailspan[{','.join(EXTRAS)}]"]
    assert set(extras) == {*EXTRAS, "all", "chdb", "docs", "helm", "rotel", "test"}


def test_the_lock_has_only_names_versions_and_hashes() -> None:
    """The lock file has each package of the image in the tested version, and no address."""
    locked: dict[str, Version] = {}
    for line in LOCK.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("#"):
            continue
        pin, *hashes = line.split()
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
        name, _, version = pin.partition("==")
        locked[_name(name)] = Version(version)
    constraints = _constraints()
    assert {name: constraints[name] for name in locked} == locked
    assert {_name(each.name) for each in _needed()} <= set(locked)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment with the two wheels and their requirements."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels = folder / "wheels"
    build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels)]
    _run([*build, str(ROOT / "instrumentation"), str(ROOT)])
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    programs = folder / "venv" / "bin"
    into = [*pip, "--python", str(programs / "python"), "install"]
    _run([*into, "-c", str(ROOT / "constraints.txt"), *map(str, wheels.glob("*.whl"))])
    return programs


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _run(words: list[str], **about: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=900, env=_environment(), **about
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.real
@pytest.mark.timeout(1_200)
def test_the_wheels_run_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    tailspan = str(installed / "tailspan")
    assert _run([tailspan, "--version"]) == f"tailspan, version {_project()['version']}\n"
    assert "tailspan_slo_events_total" in _run([tailspan, "slo", "rules"], cwd=tmp_path)
    port = _free_port()
    ports = ["--grpc-port", "0", "--http-port", "0", "--metrics-port", str(port)]
    up = subprocess.Popen(
        [tailspan, "up", "--simulate", "--no-explorer", *ports],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(),
    )
    try:
        _await_requests(port, up)
        bill = _run([tailspan, "cost", "--last", "1h"], cwd=tmp_path)
        assert "Priced at" in bill
    finally:
        up.terminate()
        up.communicate(timeout=60)
    assert up.returncode == 0


def _await_requests(port: int, up: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert up.poll() is None, up.communicate()[0]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                if b"\ntailspan_ttft_seconds" in answer.read():
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("no request on /metrics")


@pytest.mark.real
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("up",), "explorer"),
        (("ui",), "explorer"),
        (("dashboards", "build", "here"), "dashboards"),
        (("stats", "--database", "postgresql+psycopg://db/x"), "postgresql"),
        (("stats", "--database", "clickhousedb://db/x"), "clickhouse"),
    ],
)
def test_a_command_whose_extra_is_missing_names_it(
    installed: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    done = subprocess.run(
        [str(installed / "tailspan"), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
        env=_environment(),
    )
    assert done.returncode == 2
    assert f"pip install 'tailspan[{extra}]'" in done.stderr
