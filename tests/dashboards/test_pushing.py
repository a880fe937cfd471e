"""`dashboards push` with a fake of Grafana 11's documented HTTP API.

A real Grafana may refuse requests that the fake accepts.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from dashboards.boards import BOARDS
from dashboards.pushing import FOLDER_UID, SOURCE_UID
from rig.http_servers import HttpReply, ReceivedRequest, running_http_server

TOKEN = "glsa_a-token"
Answer = tuple[int, Any]


@dataclass
class Grafana:
    """A fake Grafana that stores dashboards, records requests, and can fail."""

    port: int = 0
    prefix: str = ""
    folders: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    boards: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    failures: dict[str, Answer] = field(default_factory=dict)
    """Failures by method and path."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    @property
    def written(self) -> list[str]:
        return [each for each in self.asked if not each.startswith("GET")]

    def answer(self, method: str, path: str, token: str, body: Any) -> Answer:
        if not path.startswith(f"{self.prefix}/api"):
            return 404, {"message": "Not found"}
        path = path.removeprefix(f"{self.prefix}/api")
        self.asked.append(f"{method} {path}")
        if failure := self.failures.get(f"{method} {path}"):
            return failure
        if (method, path) == ("GET", "/health"):
            return 200, {"database": "ok", "version": "11.6.0", "commit": "0"}
        if token != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key"}
        match method, path.split("/")[1:]:
            case "GET", ["folders", uid]:
                return _or_404(self.folders.get(uid), "folder not found")
            case "POST", ["folders"]:
                self.folders[body["uid"]] = body
                return 200, body
            case "GET", ["datasources", "uid", uid]:
                return _or_404(self.sources.get(uid), "Data source not found")
            case "POST", ["datasources"]:
                # Grafana adds missing keys.
                self.sources[body["uid"]] = {**body, "id": 1, "orgId": 1, "readOnly": False}
                return 200, {"datasource": self.sources[body["uid"]], "message": "Datasource added"}
            case "PUT", ["datasources", "uid", uid]:
                self.sources[uid] = body
                return 200, {"datasource": body, "message": "Datasource updated"}
            case "GET", ["dashboards", "uid", uid]:
                return _or_404(self.boards.get(uid), "Dashboard not found")
            case "POST", ["dashboards", "db"]:
                return self._keep(body)
        return 404, {"message": "Not found"}

    def _keep(self, body: Any) -> Answer:
        board = body["dashboard"]
        held = self.boards.get(board["uid"])
        version = held["dashboard"]["version"] if held else 0
        if held and not body["overwrite"] and board.get("version") != version:
            message = "The dashboard has been changed by someone else"
            return 412, {"message": message, "status": "version-mismatch"}
        kept = {**board, "id": 7, "version": version + 1}
        self.boards[board["uid"]] = {"dashboard": kept, "meta": {"folderUid": body["folderUid"]}}
        return 200, {"uid": board["uid"], "status": "success", "version": version + 1}


def _or_404(found: Any, message: str) -> Answer:
    return (404, {"message": message}) if found is None else (200, found)


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    here = Grafana()

    def answer(request: ReceivedRequest) -> HttpReply:
        body = json.loads(request.body) if request.body else None
        token = request.headers.get("authorization", "")
        status, document = here.answer(request.method, request.path, token, body)
        page = isinstance(document, str)
        text = document if page else json.dumps(document)
        kind = "text/html" if page else "application/json"
        return HttpReply(status, text.encode(), {"Content-Type": kind})

    with running_http_server(answer) as server:
        here.port = server.port
        yield here


def push(grafana: Grafana, *words: str, token: str = TOKEN) -> Result:
    return CliRunner().invoke(
        tailspan,
        ["dashboards", "push", "--url", grafana.url, *words],
        env={"GRAFANA_TOKEN": token},
        catch_exceptions=False,
    )


PROMETHEUS = ("--prometheus", "http://prometheus:9090")


def test_an_empty_grafana_gets_every_dashboard(grafana: Grafana) -> None:
    done = push(grafana, *PROMETHEUS)
    assert done.exit_code == 0, done.output
    assert set(grafana.folders) == {FOLDER_UID}
    assert grafana.sources[SOURCE_UID]["url"] == "http://prometheus:9090"
    assert set(grafana.boards) == {board.uid for board in BOARDS}
    assert all(held["meta"]["folderUid"] == FOLDER_UID for held in grafana.boards.values())
    assert done.output.count("create ") == 2 + len(BOARDS)


def test_pushing_is_idempotent(grafana: Grafana) -> None:
    push(grafana, *PROMETHEUS)
    grafana.asked.clear()
    done = push(grafana, *PROMETHEUS)
    assert done.exit_code == 0
    assert not grafana.written
    assert done.output.count("unchanged") == 2 + len(BOARDS)


def test_a_dry_run_shows_and_writes_nothing(grafana: Grafana) -> None:
    assert "would create" in push(grafana, "--dry-run").output
    assert not grafana.written
    push(grafana)
    grafana.asked.clear()
    held = grafana.boards["tailspan-fleet"]["dashboard"]
    held["title"] = "Mine"
    done = push(grafana, "--dry-run")
    assert "would update   dashboard Tailspan / Fleet" in done.output
    assert '- "title": "Mine",' in done.output
    assert '+ "title": "Tailspan / Fleet",' in done.output
    assert not grafana.written


def test_changes_by_hand_are_reverted(grafana: Grafana) -> None:
    push(grafana, *PROMETHEUS)
    grafana.boards["tailspan-fleet"]["dashboard"]["title"] = "Mine"
    grafana.boards["tailspan-engine"]["meta"]["folderUid"] = "elsewhere"
    grafana.sources[SOURCE_UID]["jsonData"]["timeInterval"] = "1m"
    grafana.asked.clear()
    assert push(grafana, *PROMETHEUS).exit_code == 0
    assert len(grafana.written) == 3
    assert grafana.boards["tailspan-fleet"]["dashboard"]["title"] == "Tailspan / Fleet"
    assert grafana.boards["tailspan-fleet"]["dashboard"]["version"] == 2
    assert grafana.boards["tailspan-engine"]["meta"]["folderUid"] == FOLDER_UID
    assert grafana.sources[SOURCE_UID]["jsonData"]["timeInterval"] == "15s"
    assert grafana.sources[SOURCE_UID]["orgId"] == 1


def test_without_prometheus_data_sources_are_not_changed(grafana: Grafana) -> None:
    push(grafana)
    assert not any("datasources" in each for each in grafana.asked)


def test_a_grafana_may_live_under_a_path(grafana: Grafana) -> None:
    """A proxy may serve Grafana under a path."""
    grafana.prefix = "/grafana"
    assert push(grafana).exit_code == 0
    grafana.prefix = "/grafana/"
    held, grafana.prefix = grafana.url, "/grafana"
    done = CliRunner().invoke(
        tailspan, ["dashboards", "push", "--url", held], env={"GRAFANA_TOKEN": TOKEN}
    )
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("asked", "failure", "wanted"),
    [
        ("POST /folders", (403, {"message": "needs folders:create"}), "needs folders:create"),
        ("POST /folders", (409, {"message": "name exists"}), "another object has its name"),
        ("POST /datasources", (403, {"message": "no"}), "role Admin"),
        ("POST /dashboards/db", (404, {"message": "Not found"}), "has no such endpoint"),
        ("POST /dashboards/db", (412, {"message": "name-exists"}), "push again"),
        ("POST /dashboards/db", (400, {"message": "Cannot save provisioned"}), "provisioned"),
        ("POST /dashboards/db", (500, {"message": "boom"}), "failed with 500 (boom)"),
        ("POST /dashboards/db", (503, "<html>no upstream</html>"), "failed with 503"),
        ("GET /health", (200, "<html>hello</html>"), "is not a Grafana"),
        ("GET /health", (200, {"status": "ok"}), "is not a Grafana"),
        ("GET /health", (404, {"message": "?"}), "has no such endpoint"),
    ],
)
def test_each_refusal_has_a_reason_and_a_remedy(
    grafana: Grafana, asked: str, failure: Answer, wanted: str
) -> None:
    grafana.failures[asked] = failure
    done = push(grafana, *PROMETHEUS)
    assert done.exit_code == 2
    assert wanted in done.output
    assert "Traceback" not in done.output
    assert TOKEN not in done.output


def test_a_change_between_looking_and_writing_is_not_lost(grafana: Grafana) -> None:
    """Without `overwrite`, Grafana compares the versions."""
    push(grafana)
    seen = json.loads(json.dumps(grafana.boards["tailspan-fleet"]))
    seen["dashboard"]["title"] = "Mine"
    seen["dashboard"]["version"] = 1
    grafana.boards["tailspan-fleet"]["dashboard"]["version"] = 2
    grafana.failures["GET /dashboards/uid/tailspan-fleet"] = (200, seen)
    done = push(grafana)
    assert done.exit_code == 2
    assert "changed by someone else" in done.output


def test_a_wrong_token_is_reported_and_not_printed(grafana: Grafana) -> None:
    done = push(grafana, token="glsa_wrong")
    assert done.exit_code == 2
    assert "rejects the token" in done.output
    assert "glsa_wrong" not in done.output


@pytest.mark.parametrize("url", ["127.0.0.1:3000", "ftp://grafana", "http://"])
def test_a_malformed_address_is_refused(url: str) -> None:
    done = CliRunner().invoke(
        tailspan, ["dashboards", "push", "--url", url], env={"GRAFANA_TOKEN": TOKEN}
    )
    assert done.exit_code == 2
    assert "http://HOST:3000" in done.output


def test_a_closed_port_is_reported() -> None:
    done = CliRunner().invoke(
        tailspan,
        ["dashboards", "push", "--url", "http://127.0.0.1:1"],
        env={"GRAFANA_TOKEN": TOKEN},
    )
    assert done.exit_code == 2
    assert "cannot be reached" in done.output


def test_a_token_must_be_in_a_file_or_the_environment(tmp_path: Path, grafana: Grafana) -> None:
    assert "GRAFANA_TOKEN is not set" in push(grafana, token="").output
    file = tmp_path / "token"
    assert "cannot be read" in push(grafana, "--token-file", str(file)).output
    file.write_text("\n")
    assert "is empty" in push(grafana, "--token-file", str(file)).output
    file.write_text("two words\n")
    assert "one line" in push(grafana, "--token-file", str(file)).output
    file.write_text(f"{TOKEN}\n")
    assert push(grafana, "--token-file", str(file), token="").exit_code == 0


def test_files_are_written_as_committed(tmp_path: Path) -> None:
    done = CliRunner().invoke(tailspan, ["dashboards", "build", str(tmp_path / "new")])
    assert done.exit_code == 0
    written = {file.name: file.read_text() for file in (tmp_path / "new").iterdir()}
    generated = Path(__file__).parents[2] / "dashboards" / "generated"
    committed = {file.name: file.read_text() for file in generated.iterdir()}
    assert set(written) == set(committed) == {f"{board.uid}.json" for board in BOARDS}
    assert [name for name in written if written[name] != committed[name]] == [], "make generate"
    assert CliRunner().invoke(tailspan, ["dashboards", "build", "/dev/null/x"]).exit_code == 2
