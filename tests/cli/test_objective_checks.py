import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from alerts.openslo.reader import OBJECTIVES
from cli.checks.findings import CheckFinding
from cli.checks.objectives import objectives
from cli.main import tailspan
from telemetry.requests import RequestTimeline

Look = Callable[..., list[CheckFinding]]
Receive = Callable[..., None]
Exported = Callable[[str], tuple[str, int]]


METRICS = """\
# TYPE tailspan_slo_events counter
tailspan_slo_events_total{slo="chat"} 40
# TYPE tailspan_slo_excluded_events counter
tailspan_slo_excluded_events_total{slo="chat",reason="aborted"} 900
tailspan_slo_excluded_events_total{slo="chat",reason="late"} %d
# TYPE tailspan_clock_lead_seconds gauge
tailspan_clock_lead_seconds{source="r0"} -400
"""


@pytest.fixture
def look(url: str, free_port: int) -> Callable[..., list[CheckFinding]]:
    def at(host: str = "127.0.0.1", port: int = free_port, *paths: Path) -> list[CheckFinding]:
        return list(objectives(url, paths, host, port))

    return at


@pytest.fixture
def receive(
    fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> Callable[..., None]:
    def store(number: int, streamed: bool | None) -> None:
        now_ns = time.time_ns()
        fill(
            *(
                request_row(
                    n,
                    received_unix_ns=now_ns - (60 + n) * 10**9,
                    streamed=streamed,
                    ttft_s=0.2,
                    output_tokens=1,
                )
                for n in range(number)
            )
        )

    return store


def test_native_spans_leave_the_default_objective_blind(look: Look, receive: Receive) -> None:
    """Native spans do not report whether a response was streamed."""
    receive(200, None)
    (found,) = look()
    assert found.ok is False
    assert found.detail.startswith(
        "chat is blind in the last hour: no request matches its `where`. Perhaps a label was"
    )
    assert found.mend is not None
    assert "install the plugin" in found.mend


def test_an_objective_that_counts_is_fine_and_silence_is_another_finding(
    look: Look, receive: Receive
) -> None:
    assert look() == []
    receive(200, True)
    assert look() == [CheckFinding("objectives", True, "requests are counted for: chat")]


def test_requests_that_are_reported_late_are_a_failure_on_metrics(
    look: Look, receive: Receive, exported: Exported
) -> None:
    """The store counts a late request at its end time, so only `/metrics` shows the delay."""
    receive(200, True)
    (found,) = look(*exported(METRICS % 41))
    assert found.ok is False
    assert "chat is blind on /metrics since Tailspan started" in found.detail
    assert "NTP" in str(found.mend)
    (found,) = look(*exported(METRICS % 40))
    assert found.ok
    # `tailspan simulate` sends past requests first, but no sender's clock is behind now.
    (found,) = look(*exported((METRICS % 41_000).replace("-400", "-2")))
    assert found.ok


@pytest.mark.parametrize(("late", "ok"), [(82, False), (80, True)])
def test_groups_on_metrics_are_judged_together(
    look: Look, receive: Receive, exported: Exported, late: int, ok: bool
) -> None:
    """The result does not depend on the groups' order, or on which group is late."""
    receive(200, True)
    groups = "".join(
        line.replace('slo="chat"', f'slo="chat",tenant="{tenant}"') % number
        if "%d" in line
        else line.replace('slo="chat"', f'slo="chat",tenant="{tenant}"')
        for line in METRICS.splitlines(keepends=True)
        for tenant, number in (("acme", late), ("other", 0))
        if tenant == "acme" or not line.startswith("#")
    )
    (found,) = look(*exported(groups))
    assert found.ok is ok


def test_objectives_that_are_not_in_force_are_not_judged(
    look: Look, receive: Receive, exported: Exported, tmp_path: Path
) -> None:
    receive(200, None)
    running = exported(METRICS.replace("chat", "web") % 0)
    (found,) = look(*running)
    assert found.ok is None
    assert found.detail.endswith("this command does not check: web")
    file = tmp_path / "web.yaml"
    (default,) = OBJECTIVES.glob("*.yaml")
    file.write_text(default.read_text().replace("name: chat", "name: web"))
    (found,) = look(*running, file)
    assert found.detail.startswith("web is blind in the last hour")


def test_files_that_cannot_be_read_are_named(look: Look, free_port: int, tmp_path: Path) -> None:
    (found,) = look("127.0.0.1", free_port, tmp_path / "none.yaml")
    assert (found.ok, "none.yaml" in found.detail) == (False, True)
    file = tmp_path / "wrong.yaml"
    (default,) = OBJECTIVES.glob("*.yaml")
    file.write_text(default.read_text().replace("ttft_s", "ttft"))
    (found,) = look("127.0.0.1", free_port, file)
    assert found.ok is False
    assert "wrong.yaml" in found.detail
    assert "allowed" in found.detail


def test_doctor_takes_the_files_of_objectives(receive: Receive, url: str, free_port: int) -> None:
    receive(200, None)
    ports = [f"--{part}-port={free_port}" for part in ("grpc", "http", "metrics", "explorer")]
    words = ["doctor", "--database", url, *ports, "--objectives", str(OBJECTIVES)]
    result = CliRunner().invoke(tailspan, words)
    assert result.exit_code == 1
    assert "FAIL  objectives" in result.stdout
