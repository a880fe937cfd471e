import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from cli.checks import clocks, connections, gpus
from cli.checks.findings import CheckFinding
from cli.main import tailspan
from store.columns import adbc_client
from store.database import open_database
from store.migrations import REVISION
from store.migrations.older_versions import OLDEST
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

Fill = Callable[..., None]
Doctor = Callable[..., Result]
Stranger = Callable[..., str]


VLLM_METRICS = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n"

Exported = Callable[[str], tuple[str, int]]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide GPUs of the machine that runs the tests."""
    none = CheckFinding("gpus", True, "none here")
    monkeypatch.setattr(gpus, "local", lambda: iter([none]))


@pytest.fixture
def doctor(url: str) -> Callable[..., Result]:
    def run(*words: str, database: str = url) -> Result:
        result = CliRunner().invoke(
            tailspan, ["doctor", "--database", database, *words], catch_exceptions=False
        )
        assert result.exit_code in (0, 1, 2)
        return result

    return run


@pytest.fixture
def nowhere(free_port: int) -> list[str]:
    """Return options with addresses that no server listens on."""
    return [f"--{part}-port={free_port}" for part in ("grpc", "http", "metrics", "explorer")]


@pytest.fixture
def somewhere(tailspan_of: Callable[..., list[str]]) -> list[str]:
    return tailspan_of()


@pytest.fixture
def received(fill: Fill, request_row: Callable[..., RequestTimeline]) -> Callable[[float], None]:
    return lambda ago_s: fill(request_row(received_unix_ns=time.time_ns() - int(ago_s * 1e9)))


def findings(result: Result) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in result.stdout.splitlines():
        finding = json.loads(line)
        assert list(finding) == ["check", "ok", "detail", "mend"]
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_all_is_well(
    doctor: Doctor,
    somewhere: list[str],
    received: Callable[[float], None],
    stranger: Stranger,
    http_answer: Callable[..., bytes],
) -> None:
    received(3)
    vllm = stranger({"/health": http_answer(), "/metrics": http_answer(body=VLLM_METRICS)})
    shown = doctor(*somewhere, "--vllm", vllm)
    assert shown.exit_code == 0, shown.output
    assert {line[:4] for line in shown.stdout.splitlines()} == {"ok  "}
    found = findings(doctor(*somewhere, "--vllm", f"{vllm}/v1", "--format", "json"))
    assert found.pop("gpus")
    assert set(found) == {"database", "telemetry", "vllm", "OTLP gRPC", "OTLP HTTP", "metrics"} | {
        "tasks",
        "objectives",
    }
    every = [finding for each in found.values() for finding in each]
    assert all(finding["ok"] is True and finding["mend"] is None for finding in every)


def test_every_check_fails_if_nothing_runs(doctor: Doctor, nowhere: list[str]) -> None:
    result = doctor(
        *nowhere, "--vllm", f"http://127.0.0.1{nowhere[0][-6:].replace('=', ':')}", "--format=json"
    )
    assert result.exit_code == 1
    found = findings(result)
    # The GPU check needs no connection.
    found.pop("gpus")
    assert set(found) == {"database", "vllm", "OTLP gRPC", "OTLP HTTP", "metrics", "explorer"}
    assert "there is no database at" in found["database"][0]["detail"]
    for check in set(found) - {"database"}:
        (finding,) = found[check]
        assert finding["ok"] is False
        assert "Connection refused" in finding["detail"]
        assert finding["mend"]
    assert "--explorer-port" in found["explorer"][0]["mend"]
    assert "FAIL  OTLP HTTP" in doctor(*nowhere).stdout


def test_old_telemetry_fails_only_where_a_server_should_report(
    doctor: Doctor, received: Callable[[float], None], nowhere: list[str], fill: Fill
) -> None:
    """Without `--vllm`, old telemetry is no failure."""
    vllm = f"http://127.0.0.1:{nowhere[0].partition('=')[2]}"
    fill()
    for ago_s, ok, words in (
        (None, None, "nothing has been received yet"),
        (72 * 3600, None, "the newest data is 3 days old"),
        (5 * 3600, None, "the newest data is 5 h old"),
        (90, None, "the newest data is 9"),
        (30, True, "the newest data is 3"),
        (-3, True, "the newest data is 0 s old"),
        (-1800.5, False, "the newest data is from 30 min in the future"),
    ):
        if ago_s is not None:
            received(ago_s)
        (finding,) = findings(doctor(*nowhere, "--format=json"))["telemetry"]
        assert finding["ok"] is ok
        assert finding["detail"].startswith(words)
        assert (finding["mend"] is None) is (ok is True)
        if ago_s in (90, 30):
            watched = doctor(*nowhere, "--format=json", "--vllm", vllm)
            (finding,) = findings(watched)["telemetry"]
            assert finding["ok"] is (ok is True)


def test_a_slow_read_path_is_reported_with_its_reason(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_database(url).dispose()

    def shown() -> list[CheckFinding]:
        return [each for each in connections.database(url) if each.check == "columns"]

    assert shown() == []
    monkeypatch.setattr(adbc_client, "find_spec", lambda _name: None)
    (finding,) = shown()
    assert finding.ok is None
    assert finding.detail.endswith("as long as necessary: adbc-driver-sqlite is not installed")


def test_a_database_of_a_newer_tailspan_is_not_read(
    doctor: Doctor, nowhere: list[str], url: str
) -> None:
    """Starting this Tailspan would not help, so the finding has no advice."""
    engine = open_database(url)
    with engine.begin() as connection:
        connection.execute(update(REVISION).values(version_num="9999"))
        connection.execute(update(OLDEST).values(oldest="9999"))
    engine.dispose()
    (finding,) = findings(doctor(*nowhere, "--format=json"))["database"]
    assert finding["ok"] is False
    assert "newer Tailspan (schema 9999" in finding["detail"]
    assert finding["mend"] is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"this is no database, by any means" * 100, "file is not a database"),
        (b"", "is empty; `tailspan up` creates a database"),
    ],
)
def test_a_file_that_is_no_database_is_reported(
    doctor: Doctor, nowhere: list[str], url: str, content: bytes, words: str
) -> None:
    Path(urlsplit(url).path).write_bytes(content)
    (finding,) = findings(doctor(*nowhere, "--format=json"))["database"]
    assert finding["ok"] is False
    assert words in finding["detail"]


@pytest.mark.parametrize("database", ["mysql://me:s3cret@db/tailspan", "nonsense", "sqlite://"])
def test_a_database_that_is_not_served_is_named_without_its_password(
    doctor: Doctor, nowhere: list[str], database: str
) -> None:
    result = doctor(*nowhere, "--format=json", database=database)
    assert "allowed: sqlite:///PATH" in findings(result)["database"][0]["detail"]
    assert "explorer" in findings(result)
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("paths", "words", "mend"),
    [
        ({}, "/health: status 404 Not Found", "correct --vllm"),
        ({"/health": (503, "Starting")}, "/health: status 503 Starting", "start it"),
        ({"/health": (200, "OK")}, "/metrics: status 404", "is this a vLLM?"),
        (
            {"/health": (200, "OK"), "/metrics": (200, "OK", "python_gc 1\n")},
            "has no vllm: series",
            "--disable-log-stats",
        ),
    ],
)
def test_a_wrong_or_unhealthy_vllm_is_reported(
    doctor: Doctor,
    stranger: Stranger,
    http_answer: Callable[..., bytes],
    nowhere: list[str],
    paths: dict[str, tuple[int, str]],
    words: str,
    mend: str,
) -> None:
    vllm = stranger({path: http_answer(*answer) for path, answer in paths.items()})
    finding = findings(doctor(*nowhere, "--format=json", "--vllm", vllm))["vllm"][-1]
    assert finding["ok"] is False
    assert words in finding["detail"]
    assert mend in finding["mend"]


@pytest.mark.parametrize(
    "wrong_answer",
    [b"\x1b]0;owned\x07SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"],
)
def test_another_program_on_our_ports_is_recognised(
    doctor: Doctor, stranger: Stranger, wrong_answer: bytes
) -> None:
    port = urlsplit(stranger(wrong_answer)).port
    result = doctor(f"--grpc-port={port}", f"--metrics-port={port}", "--no-explorer")
    assert result.exit_code == 1
    assert "FAIL  OTLP gRPC" in result.stdout
    assert "FAIL  metrics" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["up", "--vllm", "gpu-host:8000"], ["--vllm", "allowed: http://HOST:PORT"]),
        (["up", "--vllm", "http://me:s3cret@host"], ["--vllm", "must not contain an @"]),
        (["doctor", "--vllm", "http://me:s3cret@host"], ["--vllm", "must not contain an @"]),
        (["doctor", "--vllm", "http://[::1"], ["--vllm", "Invalid IPv6 URL"]),
        (["doctor", "--host", ""], ["--host", "allowed: 127.0.0.1"]),
        (["doctor", "--grpc-port", "65536"], ["--grpc-port", "65536", "<=65535"]),
        (["up", "--explorer-port", "http"], ["--explorer-port", "http", "not a whole number in"]),
    ],
)
def test_a_wrong_option_is_reported_with_its_value_and_the_allowed_ones(
    words: list[str], shown: list[str], url: str
) -> None:
    result = CliRunner().invoke(tailspan, [*words, "--database", url])
    assert result.exit_code == 2
    assert all(part in result.output for part in shown), result.output
    assert "s3cret" not in result.output
    assert not Path(urlsplit(url).path).exists()


def test_each_scraped_target_is_up_or_down(exported: Exported) -> None:
    shown = (
        'tailspan_scrape_up{target="http://a/metrics"} 1.0\n'
        'tailspan_scrape_up{target="http://b\x1b[31m/metrics"} 0.0\n'
        'tailspan_scrape_failures_total{reason="timeout",'
        'target="http://b\x1b[31m/metrics"} 4.0\n'
        'tailspan_scrape_discovery_up{discovery="targets.json"} 0.0\n'
    )
    up, down, lost = connections.scrapes(*exported(shown))
    assert (up.ok, up.detail) == (True, "http://a/metrics is up")
    assert down.ok is False
    assert "4 timeout" in down.detail
    assert "\x1b" not in down.detail
    assert lost.ok is False
    assert "targets.json" in lost.detail


def test_each_failure_of_a_target_has_a_remedy(exported: Exported) -> None:
    remedies = {
        "unauthorised": "--scrape-token-file",
        "tls": "--scrape-ca",
        "no_token": "cannot be read",
        "unreachable": "check that the target is up",
    }
    shown = "".join(
        f'tailspan_scrape_up{{target="{reason}"}} 0.0\n'
        f'tailspan_scrape_failures_total{{reason="{reason}",target="{reason}"}} 4.0\n'
        for reason in remedies
    )
    found = list(connections.scrapes(*exported(shown)))
    for finding, (reason, mend) in zip(found, remedies.items(), strict=True):
        assert reason in finding.detail
        assert mend in str(finding.mend)


def test_metrics_of_another_program_have_no_targets(exported: Exported) -> None:
    for body in ("", "tailspan_scrape_up{", "<html>"):
        assert not list(connections.scrapes(*exported(body)))


def test_a_clock_that_is_off_is_named_with_what_to_do(exported: Exported) -> None:
    """A clock that is ahead is a failure. Late data may also come from a queue."""
    shown = (
        'tailspan_clock_lead_seconds{source="a"} 42.5\n'
        'tailspan_clock_lead_seconds{source="b\x1b[31m"} -95.0\n'
        'tailspan_clock_lead_seconds{source="c"} -0.5\n'
        'tailspan_clock_ahead_seconds{source="a"} 42.0\n'
        'tailspan_clock_ahead_seconds{source="b\x1b[31m"} 0.0\n'
    )
    fast, late = clocks.clocks(*exported(shown))
    assert fast.ok is False
    assert "a: its clock is at least 42 s ahead" in fast.detail
    assert "NTP" in str(fast.mend)
    assert "collector's machine" not in str(fast.mend)
    assert late.ok is None
    assert "95 s old" in late.detail
    assert "\x1b" not in late.detail


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x1c", "\x0b", "\r"])
def test_a_senders_name_hides_no_other_clock(exported: Exported, end: str) -> None:
    """Some functions of Python end a line at these characters. The exposition format does not."""
    shown = (
        f'tailspan_clock_lead_seconds{{source="b{end}c"}} 0.0\n'
        'tailspan_clock_lead_seconds{source="a"} 42.5\n'
        'tailspan_clock_ahead_seconds{source="a"} 42.0\n'
    )
    (fast,) = clocks.clocks(*exported(shown))
    assert "a: its clock is at least 42 s ahead" in fast.detail


@pytest.mark.parametrize(("jump_s", "way"), [(691_200.0, "ahead of"), (-1800.0, "behind")])
def test_a_jump_of_our_own_clock_is_reported(exported: Exported, jump_s: float, way: str) -> None:
    shown = f"tailspan_clock_jump_seconds {jump_s}\ntailspan_retention_behind_seconds 691200\n"
    jumped, behind = clocks.clocks(*exported(shown))
    assert jumped.ok is False
    assert f"{way} the time that alerts and retention use" in jumped.detail
    assert "for 5 min, Tailspan accepts it" in str(jumped.mend)
    assert behind.ok is None
    assert "deletion of old rows is" in behind.detail
    assert "catches up within" in str(behind.mend)


def test_late_telemetry_of_all_senders_delays_alerts(exported: Exported) -> None:
    shown = (
        'tailspan_clock_lead_seconds{source="a"} -360.0\n'
        'tailspan_clock_lead_seconds{source="b"} -361.0\n'
    )
    for finding in clocks.clocks(*exported(shown)):
        assert finding.ok is None
        assert "tailspan_slo_* does not count this sender's requests" in finding.detail
        assert "first check the clock of the collector's machine" in str(finding.mend)


def test_if_all_clocks_are_ahead_our_own_clock_is_suspected(exported: Exported) -> None:
    """One clock that is behind is more likely than several clocks that are ahead."""
    shown = "".join(
        f'tailspan_clock_{what}_seconds{{source="{name}"}} 42.0\n'
        for what in ("lead", "ahead")
        for name in "ab"
    )
    found = list(clocks.clocks(*exported(shown)))
    assert len(found) == 2
    for finding in found:
        assert "first check the clock of the collector's machine" in str(finding.mend)


@pytest.mark.parametrize(
    ("ahead_s", "problem"),
    [(-90.0, "its clock is behind its clients' by at least 90 s"), (0.0, None)],
)
def test_a_clock_that_differs_from_its_clients_is_named(
    fill: Fill,
    request_row: Callable[..., RequestTimeline],
    doctor: Doctor,
    nowhere: list[str],
    ahead_s: float,
    problem: str | None,
) -> None:
    """Server and client reported the same requests, so their clocks can be compared."""
    sent_unix_ns = time.time_ns() - 200 * 10**9
    for number in range(3):
        about = {"source": Source.CLIENT, "basis": Basis.CLIENT, "span_id": "c" * 16}
        fill(
            request_row(number, received_unix_ns=sent_unix_ns, e2e_s=1.5, **about),
            request_row(
                number, received_unix_ns=sent_unix_ns + int(ahead_s * 1e9), replica="chat-0"
            ),
        )
    lines = doctor(*nowhere).output.splitlines()
    (found,) = [line for line in lines if " clocks " in line]
    assert found.startswith("FAIL" if problem else "ok")
    assert (problem or "same time as their clients") in found


@pytest.mark.parametrize("servers", [1, 2])
def test_two_servers_with_one_name_fail_with_their_processes(
    url: str, doctor: Doctor, nowhere: list[str], servers: int
) -> None:
    now_unix_ns = time.time_ns()
    engine = open_database(url)
    samples = [
        EngineSample(
            replica="vllm-0",
            engine=0,
            process=process,
            at_unix_ns=now_unix_ns - ago_s * 10**9,
            started_unix_ns=now_unix_ns - (1_000 + process) * 10**9,
            busy_s_total=1.0,
        )
        for ago_s in range(0, 120, 5)
        for process in range(1, servers + 1)
    ]
    with Writer(engine) as writer:
        writer.submit([], samples).result(10)
    engine.dispose()
    result = doctor(*nowhere, "--no-explorer")
    (found,) = [line for line in result.output.splitlines() if "names " in line[:14]]
    if servers == 1:
        assert found.startswith("ok")
    else:
        assert found.startswith("FAIL")
        assert "vllm-0: 2 servers send data as engine 0" in found
        assert "process 2, started " in found
        assert "service.instance.id=NAME" in result.output
        assert result.exit_code == 1


def test_a_server_without_a_python_front_end_is_named(
    url: str, doctor: Doctor, nowhere: list[str]
) -> None:
    engine = open_database(url)
    plain: dict[str, Any] = {
        "outcome": Outcome.STOP,
        "source": Source.INSTRUMENTATION,
        "basis": Basis.ENGINE,
        "received_unix_ns": time.time_ns() - 10**9,
        "e2e_s": 0.5,
        "request_id": None,
        "queue_s": 0.1,
    }
    rows = [
        RequestTimeline(trace_id="0" * 31 + "1", span_id="1" * 16, replica="rust", **plain),
        RequestTimeline(
            trace_id="0" * 31 + "2", span_id="2" * 16, replica="offline", frontend_s=0.0, **plain
        ),
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    engine.dispose()
    result = doctor(*nowhere, "--no-explorer")
    (found,) = [line for line in result.output.splitlines() if "front end" in line[:16]]
    assert found.startswith("ok")
    assert "rust: the front end is not Python" in found


def test_refused_items_are_counted_with_a_remedy(exported: Exported) -> None:
    shown = "".join(f'other{{number="{n}"}} 1\n' for n in range(70_000)) + (
        'tailspan_collector_items_total{reason="",result="stored",signal="traces"} 7\n'
        'tailspan_collector_items_total{reason="too_old",result="refused",signal="traces"} 2\n'
        'tailspan_collector_items_total{reason="too_old",result="refused",signal="metrics"} 40\n'
        'tailspan_collector_items_total{reason="negative",result="refused",signal="traces"} 1\n'
        'tailspan_collector_items_total{reason="missing_id",result="refused",signal="traces"} 0\n'
    )
    old, negative = connections.refusals(*exported(shown))
    assert (old.ok, old.detail) == (None, "42 items since the collector started: too_old")
    assert "--keep-rows" in str(old.mend)
    assert negative.detail == "1 item since the collector started: negative"


def test_a_gpu_without_an_engine_is_named_with_the_option(url: str) -> None:
    now = time.time_ns()
    engine = open_database(url)
    mine = GpuSample(replica="chat-0", gpu="GPU-1", at_unix_ns=now)
    nobodys = GpuSample(replica="gpu-host", gpu="GPU-2", at_unix_ns=now)
    sample = EngineSample(
        replica="chat-0", engine=0, process=7, at_unix_ns=now, started_unix_ns=now - 1
    )
    with Writer(engine) as writer:
        writer.submit([], [], (), [mine, nobodys]).result(10)
        assert list(gpus.owners(url)) == []
        writer.submit([], [sample]).result(10)
        [found] = gpus.owners(url)
    engine.dispose()
    assert found.ok is None
    assert "gpu-host" in found.detail
    assert "GPU-2" in found.detail
    assert "GPU-1" not in found.detail
    assert found.mend is not None
    assert "--gpu-replica 'GPU-2=REPLICA', where REPLICA is chat-0," in found.mend
