import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from rig.load import Call, send_all
from tests.real.conftest import TARGETS

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CALLS = [
    Call(prompt="a" * 300, max_tokens=24),
    Call(chat=False, stream=False, prompt="b" * 40, max_tokens=1),
    Call(chat=False, prompt="c" * 90, max_tokens=12),
]


def _ids(port: int) -> set[str]:
    return {timed.trace_id for timed in send_all(port, CALLS, 1)}


def _until(seen: Callable[[], bool], patience_s: float = 30) -> None:
    deadline = time.monotonic() + patience_s
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.fixture(scope="module")
def plain(start_module_vllm: Any, tailspan: Any) -> Any:
    endpoint = tailspan.address("grpc")
    return start_module_vllm("--otlp-traces-endpoint", endpoint, VLLM_PLUGINS="none")


def test_native_spans_of_a_real_vllm_are_rows(plain: Any, tailspan: Any) -> None:
    before = plain.own_metrics()
    rows = tailspan.rows(_ids(plain.port))
    own = {name: value - before.get(name, 0.0) for name, value in plain.own_metrics().items()}
    assert len(rows) == len(CALLS)
    for row in rows.values():
        assert (row["source"], row["basis"], row["outcome"]) == ("native", "engine", "length")
        assert row["frontend_s"] is None
        assert row["delivery_s"] is None
        assert row["queue_s"] + row["prefill_s"] + row["decode_s"] <= row["e2e_s"] + 1e-3
    for column, family in (("prefill_s", "prefill"), ("decode_s", "decode")):
        total = sum(row[column] for row in rows.values())
        assert total == pytest.approx(own[f"vllm:request_{family}_time_seconds_sum"], rel=0.01)


def test_metrics_of_a_real_vllm_are_samples(plain: Any, tailspan: Any) -> None:
    here = f"127.0.0.1:{plain.port}"
    unreachable = "127.0.0.1:1"
    group = {"targets": [here, unreachable], "labels": {"region": "here"}}
    (tailspan.folder / TARGETS).write_text(json.dumps([group]))
    try:
        up = f'tailspan_scrape_up{{target="http://{here}/metrics"}} 1'
        _until(lambda: up in tailspan.metrics())
        _ids(plain.port)
        tokens = plain.own_metrics()["vllm:generation_tokens_total"]
        labels = f'engine="0",model="tiny",replica="{here}"'
        reported = f"tailspan_engine_decode_tokens_total{{{labels}}} {tokens:.0f}"
        _until(lambda: reported in tailspan.metrics())
        labels = f'reason="unreachable",target="http://{unreachable}/metrics"'
        assert f"tailspan_scrape_failures_total{{{labels}}}" in tailspan.metrics()
        done = tailspan.run(
            *("doctor", "--no-explorer", "--metrics-port", str(tailspan.port("metrics"))),
            *("--http-port", str(tailspan.port("http")), "--grpc-port", str(tailspan.port("grpc"))),
        )
        assert f"http://{here}/metrics is up" in done.stdout
        assert f"http://{unreachable}/metrics is down" in done.stdout
        assert done.returncode == 1
    finally:
        (tailspan.folder / TARGETS).write_text("[]")
