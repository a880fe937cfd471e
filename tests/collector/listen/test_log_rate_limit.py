import logging

import pytest

from collector.listen.log_rate_limit import LINES, PERIOD_S, LogLimit


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
