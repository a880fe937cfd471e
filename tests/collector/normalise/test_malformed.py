import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.server import Collector
from collector.testing import MemorySink, running
from tests.collector.normalise.malformed import ALLOWED, PROTOCOLS, answers, corrupted, json_of

FEW, MANY = 200, int(os.environ.get("MALFORMED_PAYLOADS", "3000"))
"""Payloads per protocol; 100,000 take five minutes."""

GROWTH_MIB = 32
"""The allowed growth of this process from the first tenth of the payloads to the last.

If each message leaked its payload, the growth would be 100 times larger.
"""


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "number",
    [FEW, pytest.param(MANY, marks=pytest.mark.real)],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_malformed_payloads_are_answered_and_the_next_good_one_is_kept(
    protocol: str,
    number: int,
    trace_message: Callable[..., ExportTraceServiceRequest],
    now_unix_ns: int,
) -> None:
    """No payload may cause an internal error."""
    message, sink = trace_message(), MemorySink()
    good = json_of(message) if protocol == "http-json" else message.SerializeToString()
    collector = Collector(sink, grpc_port=0, http_port=0, clock_unix_ns=lambda: now_unix_ns)
    answered: Counter[str] = Counter()
    with running(collector):
        port = collector.grpc_port if protocol == "grpc" else collector.http_port
        early_mib = 0.0
        for part in range(10):
            bodies = corrupted(good, number // 10, seed=part, text=protocol == "http-json")
            answered.update(answers(protocol, port, bodies))
            sink.requests.clear()
            early_mib = early_mib or _rss_mib()
        assert set(answered) <= ALLOWED[protocol]
        assert answered.total() == number
        assert _rss_mib() - early_mib < GROWTH_MIB
        assert list(answers(protocol, port, iter([good]))) == [
            "OK" if protocol == "grpc" else "200"
        ]
        assert len(sink.requests) == 1
        messages = collector.counters.report().messages
        assert not sum(n for key, n in messages.items() if key[2] == "failed")
