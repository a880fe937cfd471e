import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, mixed, send_all

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

USD_PER_HOUR = 0.40


def at_rest(tailspan: Any, replica: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Wait until the engine is idle.

    Returns:
        Sums over the replica's requests (billed time, wasted time, cost, preemptions, lost
        accounts), and the engine's newest sample.
    """
    from store.database import open_database
    from store.queries import request_table, sample_table
    from telemetry.window import Window

    engine = open_database(f"sqlite:///{tailspan.folder}/var/tailspan.db", create=False)
    now = time.time_ns()
    window, since = Window(now - 3600 * 10**9, now + 3600 * 10**9), {"replica": replica}
    deadline, before = time.monotonic() + 30, (-1.0, -1)
    try:
        while True:
            rows = request_table(engine, window, equals=since).to_pylist()
            samples = sample_table(engine, window, equals=since).to_pylist()
            reported = (samples[-1]["busy_s_total"] or 0.0, len(rows)) if samples else before
            quiet = len(samples) > 3 and {s["busy_s_total"] for s in samples[-3:]} == {reported[0]}
            if (quiet and reported == before) or time.monotonic() > deadline:
                break
            before = reported
            time.sleep(1.5)
    finally:
        engine.dispose()
    sums = {
        name: sum(row[name] or 0.0 for row in rows) for name in ("billed_s", "wasted_s", "cost_usd")
    }
    sums["preemptions"] = sum(row["preemptions"] or 0 for row in rows)
    # A request that was aborted before its first step has no account.
    sums["lost"] = sum(row["billed_s"] is None and row["prefill_s"] is not None for row in rows)
    return sums, samples[-1]


def test_requests_and_waste_are_the_engines_busy_time(
    crowded: Any, tailspan: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """When all requests have ended, the accounted time and the busy time differ by at most one
    millionth."""
    calls = [
        *mixed(40, seed=5),
        *[Call(prompt="long answers please", max_tokens=500)] * 8,
        *[Call(prompt="patience lost", max_tokens=400, abort_after_chunks=5)] * 4,
        *(
            Call(prompt=f"gone after {number} " * 60, max_tokens=400, abort_after_s=0.01 * number)
            for number in range(1, 13)
        ),
    ]
    send_all(crowded.port, calls, concurrency=12)
    sums, sample = at_rest(tailspan, f"vllm-{crowded.port}")
    accounted_s = sums["billed_s"] + sums["wasted_s"]
    ratio = accounted_s / sample["busy_s_total"]
    reported = (
        f"billed {sums['billed_s']:.6f} s + wasted {sums['wasted_s']:.6f} s of busy"
        f" {sample['busy_s_total']:.6f} s: ratio {ratio:.9f}; {sums['preemptions']:.0f} evictions"
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{reported}\n")
    assert sums["lost"] == 0
    assert sums["preemptions"] > 0
    assert sums["wasted_s"] > 0
    assert ratio == pytest.approx(1, abs=1e-6), sums


def test_the_bill_is_price_times_the_time_it_was_up(
    crowded: Any, tailspan: Any, tmp_path: Path
) -> None:
    bare = tailspan.run("cost", "--last", "1h", "--format", "json")
    found = json.loads(bare.stdout)
    assert found["total"] is None
    assert any(each["device"] == "cpu" for each in found["unpriced"])
    assert "usd_per_hour" in tailspan.run("cost", "--last", "1h").stdout
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"devices: [{{match: cpu, usd_per_hour: {USD_PER_HOUR}}}]")
    done = tailspan.run("cost", "--last", "1h", "--format", "json", "--prices", str(prices))
    total = json.loads(done.stdout)["total"]
    parts = ("requests_usd", "wasted_usd", "idle_usd", "loading_usd", "unbilled_usd")
    assert sum(total[part] for part in parts) == pytest.approx(total["bill_usd"], rel=1e-9)
    assert total["bill_usd"] == pytest.approx(total["wall_s"] * USD_PER_HOUR / 3_600, rel=1e-9)
    assert total["unbilled_usd"] == pytest.approx(0, abs=1e-6 * total["bill_usd"])
    assert 0 < total["busy_s"] < total["wall_s"]
