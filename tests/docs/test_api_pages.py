"""The examples in docs/api.md and docs/gates.md work on a simulated fleet."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest
import yaml
from jsonpath_ng.parser import parse

from cli.questions.answer import answered
from cli.questions.declared import questions
from cli.questions.refusal import QuestionRefused
from tests.analysis.compare.two_windows import store_canary
from tests.served_api import ServedApi, served, store_fleet

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^\$ curl -s 'http://127\.0\.0\.1:9464(/api/v1/[^']+)'\n(.+)$", re.MULTILINE)
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVER = "https://tailspan.example.org:9464"
UNREACHABLE = "http://127.0.0.1:1"
REPLICA = "sim-0"
NEEDS_TOOLS = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not installed"
)


class Fleets(NamedTuple):
    slow: ServedApi
    healthy: ServedApi
    end_s: int
    """The end of the slow fleet's data, in Unix seconds."""


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> Iterator[Fleets]:
    """Return a fleet that one tenant floods, and the same fleet before the flood."""
    with ExitStack() as running:

        def start(name: str, flooded: bool) -> tuple[ServedApi, int]:
            url = f"sqlite:///{tmp_path_factory.mktemp(name)}/tailspan.db"
            end_s = store_fleet(url, run_folder, flooded=flooded)
            return running.enter_context(served(url)), end_s

        slow, end_s = start("slow", flooded=True)
        healthy, _ = start("healthy", flooded=False)
        yield Fleets(slow, healthy, end_s)


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _examples() -> list[tuple[str, str]]:
    return EXAMPLE.findall(_page("api.md"))


def _answer(database: str, address: str) -> str:
    """Return the answer to a URL of the API, or the problem, computed in this process."""
    path, _, query = address.removeprefix(SERVER).partition("?")
    assert path.startswith("/api/v1/"), address
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILSPAN_DATABASE_URL", database)
        try:
            return answered(path.rpartition("/")[2], parse_qsl(query)).document()
        except QuestionRefused as refused:
            return json.dumps(refused.problem)


@pytest.mark.parametrize(("path", "output"), _examples())
def test_each_example_of_the_api_prints_the_shown_keys(
    fleets: Fleets, path: str, output: str
) -> None:
    """The keys are the same; the values depend on the traffic."""
    # On a slow machine, the last two minutes have no requests any more. A prediction for 30 s has
    # the same keys.
    end_s = fleets.end_s
    path = path.replace("last=2m", f"from={end_s - 30}&to={end_s}")
    found = _answer(fleets.slow.url, path)
    assert ('"status": 400' in found) is ('"status": 400' in output), found
    assert set(re.findall(r'"(\w+)":', output)) <= set(re.findall(r'"(\w+)":', found))
    assert found[0] == output[0]


def test_each_question_has_an_example() -> None:
    shown = {path.partition("?")[0].rpartition("/")[2] for path, _ in _examples()}
    assert shown == set(questions())


@pytest.mark.parametrize("number", [0, 1])
def test_the_panel_finds_its_columns(fleets: Fleets, number: int) -> None:
    query = [json.loads(each) for each in _blocks("json", "api.md")][number]
    answer = _panel_answer(query, fleets.slow.url)
    rows = _rows(answer, query["root_selector"])
    assert len(rows) > (1 if number == 0 else 0)
    for column in query["columns"]:
        kind = str if column["type"] == "string" else (int, float)
        values = [found.value for row in rows for found in parse(column["selector"]).find(row)]
        assert len(values) == len(rows)
        assert all(isinstance(each, kind) for each in values), column
    if number == 1:
        _check_the_change_over_the_load(_rows(answer, "curve"))


def _check_the_change_over_the_load(rows: list[dict[str, Any]]) -> None:
    sentence = _page("api.md").partition("set `root_selector` to `curve`, and select ")[2]
    columns = re.findall(r"`(\w+)`", sentence.partition(".")[0])
    assert len(columns) == 5
    assert rows
    assert all(isinstance(row[name], int | float) for row in rows for name in columns)


def _panel_answer(query: dict[str, Any], database: str) -> Any:
    now = int(time.time())
    url = query["url"]
    for name, value in (
        ("${__from:date:seconds}", str(now - 900)),
        ("${__to:date:seconds}", str(now)),
        ("blue-0", "sim-0"),
        ("green-0", "sim-1"),
    ):
        url = url.replace(name, value)
    return json.loads(_answer(database, url))


def _rows(found: Any, root: str) -> list[dict[str, Any]]:
    """Read an answer as the data source does: the rows below the root; an object is one row."""
    rows = found[root] if root else found
    return rows if isinstance(rows, list) else [rows]


def _blocks(language: str, page: str = "gates.md") -> list[str]:
    return [text for kind, text in FENCED.findall(_page(page)) if kind == language]


def _manifest(kind: str) -> dict[str, Any]:
    documents = (yaml.safe_load(block) for block in _blocks("yaml"))
    (found,) = (each for each in documents if each.get("kind") == kind or kind in each)
    return dict(found)


def _argo_result(
    metric: dict[str, Any], database: str, replica: str = REPLICA, stable: str = ""
) -> object:
    """Send the request of Argo's `web` provider, and return the value at the JSON path."""
    web = metric["provider"]["web"]
    assert web["headers"] == [{"key": "Authorization", "value": "Bearer {{args.token}}"}]
    url = web["url"].replace("{{args.replica}}", replica).replace("{{args.stable}}", stable)
    (match,) = parse(web["jsonPath"].strip("{}")).find(json.loads(_answer(database, url)))
    return match.value


def _condition(text: str, result: object) -> bool:
    """Evaluate a condition from the page: `result` compared with a literal."""
    if among := re.fullmatch(r'result in (\["\w+"(?:, "\w+")*\])', text):
        return result in json.loads(among[1])
    compared = re.fullmatch(r'result (<=|>|==) ("\w+"|[0-9.]+)', text)
    assert compared is not None, text
    literal = yaml.safe_load(compared[2])
    if compared[1] == "==":
        return bool(result == literal)
    assert isinstance(result, int | float), "a comparison with null is an error"
    return bool(result <= literal if compared[1] == "<=" else result > literal)


@pytest.mark.parametrize("number", [0, 1])
def test_argo_stops_the_slow_version_and_passes_the_healthy_one(
    fleets: Fleets, number: int
) -> None:
    metric = _manifest("AnalysisTemplate")["spec"]["metrics"][number]
    for api, passes in ((fleets.slow, False), (fleets.healthy, True)):
        result = _argo_result(metric, api.url)
        assert _condition(metric["successCondition"], result) is passes, result
        assert _condition(metric["failureCondition"], result) is not passes, result


def _run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@NEEDS_TOOLS
def test_flagger_stops_the_slow_version_and_passes_the_healthy_one(
    fleets: Fleets, tmp_path: Path
) -> None:
    (webhook,) = _manifest("Canary")["spec"]["analysis"]["webhooks"]
    assert webhook["metadata"]["type"] == "bash"
    for api, passes in ((fleets.slow, False), (fleets.healthy, True)):
        command = webhook["metadata"]["cmd"].replace(SERVER, api.address)
        here = command.replace("replica%3Dcanary", f"replica%3D{REPLICA}")
        assert here != command
        done = _run(["bash", "-c", here], tmp_path, TOKEN="x")
        assert (done.returncode == 0) is passes, done.stderr
    # The gate also fails for a replica without requests, and if Tailspan cannot be reached.
    for each in (command, here.replace(api.address, UNREACHABLE)):
        assert _run(["bash", "-c", each], tmp_path, TOKEN="x").returncode != 0


@NEEDS_TOOLS
def test_the_step_in_github_actions_stops_the_slow_version(fleets: Fleets, tmp_path: Path) -> None:
    (step,) = _manifest("jobs")["jobs"]["gate"]["steps"]
    assert set(step["env"]) == {"TAILSPAN", "TOKEN"}
    script = step["run"].replace("replica=canary", f"replica={REPLICA}")
    for api, passes in ((fleets.slow, False), (fleets.healthy, True)):
        done = _run(["bash", "-e", "-c", script], tmp_path, TAILSPAN=api.address, TOKEN="x")
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
    for address, run in ((UNREACHABLE, script), (api.address, step["run"])):
        done = _run(["bash", "-e", "-c", run], tmp_path, TAILSPAN=address, TOKEN="x")
        assert done.returncode != 0


@NEEDS_TOOLS
def test_the_script_for_one_server_stops_the_slow_version(fleets: Fleets, tmp_path: Path) -> None:
    (script,) = _blocks("sh")
    gate = tmp_path / "gate.sh"
    gate.write_text(script)
    slow = _run(["sh", str(gate), "0.5"], tmp_path, TAILSPAN=fleets.slow.address)
    assert (slow.returncode, slow.stdout) == (1, "")
    assert "pages" in slow.stderr
    healthy = _run(["sh", str(gate), "0.5"], tmp_path, TAILSPAN=fleets.healthy.address)
    assert (healthy.returncode, healthy.stdout) == (0, "ok\n"), healthy.stderr
    tight = _run(["sh", str(gate), "0.001"], tmp_path, TAILSPAN=fleets.healthy.address)
    assert tight.returncode == 1
    assert "above 0.001 s" in tight.stderr
    away = _run(["sh", str(gate), "0.5"], tmp_path, TAILSPAN=UNREACHABLE)
    assert away.returncode not in (0, 1)


def test_argo_stops_a_canary_that_is_slower_than_the_stable_replica(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/canary.db"
    store_canary(url, int(time.time()) - 300)
    metric = _manifest("AnalysisTemplate")["spec"]["metrics"][2]
    for replica, stable, verdict in (
        ("sim-1", "sim-0", "worse"),
        ("sim-0", "sim-1", "better"),
        ("no-such", "sim-0", "undecided"),
    ):
        result = _argo_result(metric, url, replica, stable)
        assert result == verdict
        assert _condition(metric["successCondition"], result) is (verdict == "better")
        assert _condition(metric["failureCondition"], result) is (verdict == "worse")
