import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from tailspan_vllm import names
from tailspan_vllm.export import pod_start
from tailspan_vllm.export.pod_start import MAX_BYTES, PodStart
from tailspan_vllm.settings import settings_from
from tailspan_vllm.start_up.process import START_VARIABLE

from tests.instrumentation.pods import BEGAN_NS, UID, events_of, pod_of

POD = "/api/v1/namespaces/inference/pods/chat-0"
EVENTS = f"/api/v1/namespaces/inference/events?fieldSelector=involvedObject.uid%3D{UID}&limit=500"
WHOLE_S = 107.5
ENABLED = settings_from({"TAILSPAN_KUBERNETES": "true"})
Answer = tuple[int, bytes]


class Api:
    def __init__(self, authority: trustme.CA) -> None:
        self.authority = authority
        self.reset(Path())
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.tokens.append(self.headers["authorization"])
                time.sleep(api.slow_s)
                status, body = api.answers.get(self.path, (404, b"{}"))
                self.send_response(status)
                if status == 302:
                    self.send_header("location", body.decode())
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self, account: Path) -> None:
        self.answers: dict[str, Answer] = {
            POD: (200, json.dumps(pod_of()).encode()),
            EVENTS: (200, json.dumps(events_of()).encode()),
        }
        self.tokens: list[str | None] = []
        self.account = account
        self.slow_s = 0.0

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.server_port),
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=chat-0,service.instance.id=a",
            START_VARIABLE: f"100.0 106.0 {BEGAN_NS}",
            **more,
        }

    def parts(self, **more: str) -> dict[str, float]:
        return waited(PodStart(ENABLED, self.environ(**more), self.account))


def waited(start: PodStart) -> dict[str, float]:
    until = time.monotonic() + 20
    while (found := start.parts()) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def in_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_start, "descends_from_process_1", lambda: True)


@pytest.fixture(scope="module")
def running() -> Iterator[Api]:
    api = Api(trustme.CA())
    yield api
    api.server.shutdown()
    api.server.server_close()


@pytest.fixture
def api(running: Api, tmp_path: Path) -> Api:
    running.authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "namespace").write_text("inference")
    running.reset(tmp_path)
    return running


def test_the_parts_are_read_with_the_token_of_the_service_account(api: Api) -> None:
    parts = api.parts()
    assert sum(parts.values()) == WHOLE_S
    assert parts[names.START_IMAGE_PULL] == 50.0
    assert api.tokens == ["Bearer secret-token"] * 2


def test_without_the_variable_nothing_is_asked(api: Api) -> None:
    assert PodStart(settings_from({}), api.environ(), api.account).parts() == {}
    assert api.tokens == []


def test_the_names_of_namespace_and_pod_are_quoted(api: Api) -> None:
    api.parts(OTEL_RESOURCE_ATTRIBUTES="k8s.namespace.name=a%2Fb,k8s.pod.name=c%3Fd")
    api.answers = {"/api/v1/namespaces/a%2Fb/pods/c%3Fd": api.answers[POD]}
    parts = api.parts(OTEL_RESOURCE_ATTRIBUTES="k8s.namespace.name=a%2Fb,k8s.pod.name=c%3Fd")
    assert sum(parts.values()) == WHOLE_S


def test_without_names_the_host_is_the_pod(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "chat-0")
    assert sum(api.parts(OTEL_RESOURCE_ATTRIBUTES="").values()) == WHOLE_S


def test_without_the_right_to_read_events_the_pull_counts_as_the_container(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.answers[EVENTS] = (403, b'{"kind": "Status", "code": 403}')
    parts = api.parts()
    assert names.START_IMAGE_PULL not in parts
    assert sum(parts.values()) == WHOLE_S
    assert "HTTP 403" in caplog.text
    assert "list events" in caplog.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, b""), "HTTP 401"),
        ((403, b"{}"), "get pods"),
        ((404, b"{}"), "HTTP 404"),
        ((500, b"oops"), "HTTP 500"),
        ((302, b"https://127.0.0.1:1/"), "HTTP 302"),
        ((200, b""), "not JSON"),
        ((200, b"\xff{"), "not JSON"),
        ((200, b"[" * 100_000), "not JSON"),
        ((200, b"[]"), "not an object"),
        ((200, b'{"a": "' + b"x" * MAX_BYTES + b'"}'), "more than"),
    ],
    ids=["401", "403", "404", "500", "redirect", "empty", "bytes", "deep", "list", "huge"],
)
def test_another_answer_is_named_in_one_line_without_the_token(
    api: Api, caplog: pytest.LogCaptureFixture, answer: Answer, reason: str
) -> None:
    api.answers[POD] = answer
    assert api.parts() == {}
    [line] = [each.getMessage() for each in caplog.records]
    assert reason in line
    assert "secret-token" not in line


@pytest.mark.parametrize("answer", [b"{}", b'{"status": 5, "metadata": []}', b'{"metadata": {}}'])
def test_an_object_that_is_no_pod_has_no_parts(api: Api, answer: bytes) -> None:
    api.answers[POD] = (200, answer)
    assert api.parts() == {}


def test_an_api_with_another_certificate_gets_no_token(api: Api) -> None:
    trustme.CA().cert_pem.write_to_path(api.account / "ca.crt")
    assert api.parts() == {}
    assert api.tokens == []


@pytest.mark.parametrize("missing", ["token", "namespace", "ca.crt"])
def test_a_missing_file_of_the_service_account_is_named(
    api: Api, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    (api.account / missing).unlink()
    assert api.parts() == {}
    assert len(caplog.records) == 1


def test_outside_a_cluster_the_log_says_so(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    assert api.parts(KUBERNETES_SERVICE_HOST="") == {}
    assert "KUBERNETES_SERVICE_HOST" in caplog.text


def test_an_api_that_does_not_answer_delays_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pod_start, "MAX_WAIT_S", 0.0)
    api.slow_s = 0.1
    asking = PodStart(ENABLED, api.environ(), api.account)
    assert asking.parts() in (None, {})
    assert waited(asking) == {}
    time.sleep(0.3)
    assert asking.parts() == {}  # a late answer is ignored
    assert "no answer within" in caplog.text


def test_a_process_that_was_not_started_with_the_container_asks_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_start, "descends_from_process_1", lambda: False)
    assert api.parts() == {}
    assert api.tokens == []
