"""Rules on symptoms, and on vLLM's own histograms, in Prometheus' own hands."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.generate import EXPLORER_URL, vllm_rules
from alerts.objectives import Objective
from alerts.policy import load_policy
from alerts.rulefile import render
from alerts.symptom_rules import symptom_groups

pytestmark = pytest.mark.real

FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing",severity!="info"})'
ENGINE: Final = '{model="m",replica="r",engine="0"}'


def run(tmp_path: Path, rules: str, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    """Which alerts fire at which times.

    Args:
        tmp_path: to work in.
        rules: the rules file.
        series: values by series, a minute apart.
        fires: by time, the alerts that fire then; no others may.
    """
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    groups = yaml.safe_load(rules)["groups"]
    one = {"name": "all", "rules": [rule for group in groups for rule in group["rules"]]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [one]}))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": v} for name, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": FIRING,
                        "eval_time": at,
                        "exp_samples": [
                            {"labels": f'{{alertname="{name}"}}', "value": 1} for name in names
                        ],
                    }
                    for at, names in fires.items()
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def symptoms(tmp_path: Path, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    """Of a Tailspan that is scraped."""
    series = {"tailspan_build_info": "1x600", **series}
    run(tmp_path, render(symptom_groups(EXPLORER_URL)), series, fires)


def test_a_long_queue_is_told_and_a_short_one_is_not(tmp_path: Path) -> None:
    """More waiting than running, for a while."""
    symptoms(
        tmp_path,
        {
            f"tailspan_engine_waiting_requests{ENGINE}": "0x30 50x30 0x30",
            f"tailspan_engine_running_requests{ENGINE}": "8x90",
        },
        {"29m": [], "33m": [], "45m": ["TailspanQueueOutgrowsBatch"], "80m": []},
    )


def test_a_full_cache_and_evictions_are_told(tmp_path: Path) -> None:
    """Above 95 % throughout; ten evictions in ten minutes."""
    symptoms(
        tmp_path,
        {
            f"tailspan_engine_kv_cache_usage_ratio{ENGINE}": "0.9x30 0.97x30",
            f"tailspan_engine_preemptions_total{ENGINE}": "0x30 0+3x30",
        },
        {"29m": [], "50m": ["TailspanKvCacheFull", "TailspanPreempting"]},
    )


def test_a_cache_that_no_longer_hits_is_told(tmp_path: Path) -> None:
    """Half was found for hours, now a tenth; a cache that never hit is no collapse."""
    symptoms(
        tmp_path,
        {
            f"tailspan_engine_prefix_cache_queries_tokens_total{ENGINE}": "0+10000x320",
            f"tailspan_engine_prefix_cache_hits_tokens_total{ENGINE}": "0+5000x300 1500000+1000x20",
        },
        {"290m": [], "318m": ["TailspanCacheHitCollapse"]},
    )
    symptoms(
        tmp_path,
        {
            f"tailspan_engine_prefix_cache_queries_tokens_total{ENGINE}": "0+10000x320",
            f"tailspan_engine_prefix_cache_hits_tokens_total{ENGINE}": "0+0x320",
        },
        {"318m": []},
    )


def test_failures_are_told_by_their_share_and_number(tmp_path: Path) -> None:
    """One error of ten is nothing yet; one of ten, a hundred times over, is."""
    for per_minute, fires in ((0.1, []), (10, ["TailspanAborts", "TailspanErrors"])):
        symptoms(
            tmp_path,
            {
                f'tailspan_requests_total{{model="m",replica="r",outcome="{outcome}"}}': (
                    f"0+{per_minute * share:g}x60"
                )
                for outcome, share in (("stop", 8), ("error", 1), ("abort", 1))
            },
            {"50m": list(fires)},
        )


def test_silence_is_told(tmp_path: Path) -> None:
    """Of an engine, and of Tailspan itself."""
    symptoms(
        tmp_path,
        {f"tailspan_engine_last_sample_timestamp_seconds{ENGINE}": "0+60x30 1800x30"},
        {"29m": [], "50m": ["TailspanEngineSilent"]},
    )
    rules = render(symptom_groups(EXPLORER_URL))
    run(
        tmp_path,
        rules,
        {"tailspan_build_info": "1x20 stale"},
        {"20m": [], "30m": ["TailspanAbsent"]},
    )


def test_vllms_own_histogram_pages_and_other_buckets_are_absent(
    tmp_path: Path, objective: Callable[..., Objective]
) -> None:
    """However the bound is written; with other bounds nothing is counted, which is said."""
    rules = vllm_rules([objective(good="ttft_s <= 1")], load_policy(), EXPLORER_URL)
    name = "vllm:time_to_first_token_seconds"
    for le in ("1", "1.0"):
        run(
            tmp_path,
            rules,
            {f"{name}_count": "0+100x120", f'{name}_bucket{{le="{le}"}}': "0+100x60 6000x60"},
            {"59m": [], "75m": ["TailspanBudgetBurn"]},
        )
    run(
        tmp_path,
        rules,
        {f"{name}_count": "0+100x120", f'{name}_bucket{{le="1.5"}}': "0+100x120"},
        {"15m": ["TailspanObjectiveAbsent"]},
    )
