import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from rig.needed_rules import needed
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

START_NS = 1_790_000_000 * 10**9

OBJECTIVE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: {name}}}
spec:
  service: chat
  budgetingMethod: {method}
  timeWindow: [{{duration: {period}, {window}}}]
  objectives: [{{target: {target}{slices}}}]
  indicator: {{metadata: {{name: goodput}}, spec: {{ratioMetric: {{
    total: {{metricSource: {{type: tailspan, spec: {{{where}}}}}}},
    good: {{metricSource: {{type: tailspan, spec: {{good: '{good}'}}}}}}}}}}}}
"""


def request_rows() -> Callable[..., RequestTimeline]:
    """Return a function that makes requests that meet their targets, with fields replaced."""
    ids = count(1)

    def make(**about: Any) -> RequestTimeline:
        plain: dict[str, Any] = {
            "trace_id": f"{next(ids):032x}",
            "span_id": f"{1:016x}",
            "request_id": "chatcmpl-1",
            "received_unix_ns": START_NS,
            "e2e_s": 1.0,
            "ttft_s": 0.2,
            "decode_s": 0.4,
            "output_tokens": 21,
            "itl_max_s": 0.03,
            "outcome": Outcome.STOP,
            "source": Source.INSTRUMENTATION,
            "basis": Basis.HTTP,
            "streamed": True,
        }
        return RequestTimeline(**{**plain, **about})

    return make


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    return request_rows()


def openslo(**about: str) -> str:
    """Return an OpenSLO document with the given fields replaced."""
    plain = {
        "name": "chat",
        "period": "30d",
        "window": "isRolling: true",
        "method": "Occurrences",
        "target": "0.99",
        "slices": "",
        "where": "",
        "good": "ttft_s <= 0.5 and tpot_s <= 0.05",
    }
    return OBJECTIVE.format(**{**plain, **about})


def default_objective(**about: str) -> Objective:
    return _objective_of(openslo(**about))


@pytest.fixture
def document() -> Callable[..., str]:
    return openslo


@pytest.fixture
def objective() -> Callable[..., Objective]:
    return default_objective


@cache
def _objective_of(text: str) -> Objective:
    """Cached: parsing takes 40 ms, and some tests read one objective a thousand times."""
    findings = inspect_texts({"chat.yaml": text})
    assert not findings.errors
    return findings.spec.objectives[0]


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., None]:
    """Return a function that runs one rule test; values and evaluations are `interval` apart.

    It evaluates only the rules that the samples need. A test of alerts evaluates every rule,
    because the annotations of alerts contain queries.
    """

    def run(
        rules: str,
        series: Mapping[str, str] | None = None,
        samples: Iterable[Mapping[str, Any]] = (),
        alerts: Iterable[Mapping[str, Any]] = (),
        interval: str = "1m",
        every_rule: bool = False,
    ) -> None:
        if shutil.which("promtool") is None:
            pytest.skip("there is no promtool: apt-get install prometheus")
        # promtool evaluates groups in any order. Unlike Prometheus, it does not keep the results of
        # the last few seconds. So all rules are in one group, which evaluates them in their order.
        groups = yaml.safe_load(rules)["groups"]
        every = [rule for group in groups for rule in group["rules"]]
        samples, alerts = list(samples), list(alerts)
        if not (every_rule or alerts):
            every = needed(every, [each["expr"] for each in samples])
        one = {"name": "all", "rules": every}
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [one]}))
        test = {
            "interval": interval,
            "input_series": [{"series": k, "values": v} for k, v in (series or {}).items()],
            "promql_expr_test": samples,
            "alert_rule_test": alerts,
        }
        whole = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": [test]}
        (tmp_path / "test.yaml").write_text(yaml.safe_dump(whole))
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"],
            cwd=tmp_path,
            # Less garbage collection saves a fifth of the time; promtool needs little memory.
            env={**os.environ, "GOGC": "400"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return run
