import logging
from importlib import import_module

import pytest

from collector.listen import log_rate_limit
from collector.listen.log_rate_limit import LINES, PERIOD_S, LogLimit, limit_logs


def test_a_line_of_code_logs_a_few_times_a_period(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = logging.getLogger("a log of this test")
    log.addFilter(LogLimit(lambda: now[0]))

    def complain(number: int) -> None:
        log.warning("trouble %d", number)

    for number in range(LINES + 7):
        complain(number)
    log.warning("another line")
    now[0] += PERIOD_S
    complain(99)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        *(f"trouble {number}" for number in range(LINES)),
        "another line",
        "trouble 99 (7 more like this before)",
    ]


@pytest.mark.parametrize(
    "module",
    [
        "collector.intake",
        "collector.otlp.grpc_receiver",
        "collector.otlp.http_receiver",
        "collector.otlp.layout_reader",
        "collector.otlp.message_reader",
        "exporters.forwarding.forwarder",
        "server.api.worker_pool",
        "store.writer",
    ],
)
def test_a_client_cannot_fill_the_log(
    module: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These modules log a line for each message that causes an exception."""
    limit_logs()
    monkeypatch.setattr(log_rate_limit._LIMIT, "_seen", {})
    log: logging.Logger = import_module(module)._log
    for number in range(LINES + 7):
        log.error("trouble %d", number)
    assert len(caplog.records) == LINES
