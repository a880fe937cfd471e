import logging

import pytest
from tailspan_vllm.export.export_log import REPEAT_S, ExportLog
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict
from tailspan_vllm.settings import settings_from

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
OK = ExportResponse(ExportVerdict.ACCEPTED)
AWAY = ExportResponse(ExportVerdict.UNREACHABLE, "ConnectionError: refused")


class Log:
    def __init__(self, caplog: pytest.LogCaptureFixture, **environ: str) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.now = 0.0
        self.reports = ExportLog(
            settings_from({**HERE, **environ}), logging.getLogger("test"), lambda: self.now
        )

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


def test_an_outage_logs_two_lines_for_all_signals(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    for signal, outcome in (
        *(("traces", AWAY), ("metrics", AWAY), ("traces", AWAY)),
        *(("metrics", OK), ("traces", OK), ("logs", OK)),
    ):
        log.reports.note(signal, outcome)  # type: ignore[arg-type]  # a literal
    gone, back = log.lines
    assert "no collector at http://127.0.0.1:4318" in gone
    assert "ConnectionError: refused" in gone
    assert back.endswith("is back")


def test_a_busy_collector_is_not_absent(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.reports.note("traces", ExportResponse(ExportVerdict.BUSY, "HTTP 503 Service Unavailable"))
    (line,) = log.lines
    assert "asks to wait" in line
    assert "no collector" not in line


def test_a_refusal_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Only the status code is compared, because the text may differ each time."""
    log = Log(caplog)
    for number in range(50):
        log.reports.note(
            "traces", ExportResponse(ExportVerdict.REFUSED, f"INVALID_ARGUMENT: span {number}")
        )
    assert len(log.lines) == 1
    assert "refuses spans: INVALID_ARGUMENT: span 0" in log.lines[0]
    log.reports.note("traces", ExportResponse(ExportVerdict.DENIED, "HTTP 401 Unauthorized"))
    log.now = REPEAT_S
    log.reports.note("traces", ExportResponse(ExportVerdict.REFUSED, "INVALID_ARGUMENT: again"))
    assert len(log.lines) == 3


def test_malformed_variables_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, OTEL_EXPORTER_OTLP_TIMEOUT="10s")
    log.reports.begin()
    log.reports.begin()
    capturing, complaint = log.lines
    assert "go to http://127.0.0.1:4318 (http/protobuf)" in capturing
    assert "OTEL_EXPORTER_OTLP_TIMEOUT='10s' is not valid" in complaint
