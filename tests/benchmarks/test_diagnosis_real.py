import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import diagnosis_real
from benchmarks._true_shares import true_shares
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline
from tests.conftest import START_NS
from tests.rig.faults.test_report import FOUND


def test_recordings_exist_until_the_true_shares_are_computed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `--keep`, the recordings are in a temporary folder."""
    monkeypatch.setattr("sys.argv", ["diagnosis_real.py", "--shares"])
    monkeypatch.setattr(diagnosis_real, "recorded", lambda *given: [given[-1]])
    found = SimpleNamespace(right=True)
    monkeypatch.setattr(diagnosis_real, "evaluate_explanation", lambda *_: found)
    monkeypatch.setattr(diagnosis_real, "line", lambda _: "the line of the fault")
    monkeypatch.setattr(diagnosis_real, "summary", lambda _: "the summary")
    monkeypatch.setattr(
        diagnosis_real, "shares_summary", lambda cases, _: [f"exists: {cases[0].is_dir()}"]
    )
    assert diagnosis_real.main() == 0
    assert "exists: True" in capsys.readouterr().out


def test_a_true_share_compares_a_window_with_the_means_of_the_others(
    tmp_path: Path, request_row: Callable[..., RequestTimeline]
) -> None:
    e2e_s = {
        "usual": (1.0,),
        "no_incident": (1.0, 1.2),
        "engine_stall": (2.0, 2.2),
        "longer_outputs": (4.0, 4.4),
        "longer_outputs+engine_stall": (5.0, 5.4),
    }
    truths, rows = dict[str, dict[str, Any]](), list[RequestTimeline]()
    start_s = START_NS / 1e9
    for cause, latencies in e2e_s.items():
        for repeat, latency_s in enumerate(latencies, 1):
            name = cause if repeat == 1 else f"{cause}-{repeat}"
            begun_s = start_s + 100 * len(truths)
            window = {"begun_s": begun_s, "ended_s": begun_s + 100}
            truths[name] = {"cause": cause, "window": window}
            rows.append(request_row(100 * len(rows) + 1, e2e_s=latency_s))
    baseline = truths.pop("usual")["window"]
    for name, truth in truths.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "truth.json").write_text(json.dumps({**truth, "baseline": baseline}))
    pair = tmp_path / "longer_outputs+engine_stall"
    with Writer(open_database(f"sqlite:///{pair / 'tailspan.db'}")) as writer:
        writer.submit(rows, []).result()
    of = replace(FOUND, cause="longer_outputs+engine_stall", metric="e2e", tail_share=0.1)
    found = true_shares(pair, of)
    # The first window took 5.0. The means of the others are 1.1, 2.1 with stalls, and 4.2 with
    # longer outputs. Longer outputs add 3.1 or 2.9, and stalls 1.0 or 0.8. The windows of the first
    # round alone give 3.0 of 4.0 for longer outputs, and those of the second round 3.2 of 4.4.
    assert found is not None
    outputs, stalls = found
    assert outputs == pytest.approx((0.75, np.std([0.75, 3.2 / 4.4], ddof=1)))
    assert stalls == pytest.approx((0.225, np.std([0.25, 1.0 / 4.4], ddof=1)))
