import json
from dataclasses import replace
from pathlib import Path

from benchmarks.diagnosis_real import cases_in, line, summary
from rig.faults.evaluation import ExplanationResult

FOUND = ExplanationResult(
    cause="engine_stall",
    metric="itl_max",
    severity=0.5,
    seed=1,
    verdict="incident",
    found=("engine_stall", "preemption"),
    shares=(0.8, 0.2),
    intervals=((0.7, 0.9), (0.1, 0.3)),
    not_replayed=None,
    tail_share=0.05,
    baseline_s=0.02,
    excess_s=0.4,
    others_cpus=(0.0, 0.1),
)
MISSED = replace(FOUND, verdict="no_incident", found=(), shares=(), intervals=())
QUIET = replace(MISSED, cause="no_incident")


def test_a_line_has_the_cause_and_its_share() -> None:
    reported = line(FOUND)
    assert "80%" in reported
    assert "right" in reported
    assert reported.endswith("preemption")


def test_a_fault_that_was_not_seen_is_wrong() -> None:
    assert "WRONG" in line(MISSED)
    assert "no_incident" in line(MISSED)


def test_the_sum_separates_false_alarms() -> None:
    text = summary([FOUND, MISSED, QUIET, replace(FOUND, cause="no_incident")])
    assert "1 of 2 faults named first (1 causes)" in text
    assert "1 not detected" in text
    assert "1 of 2 false alarms" in text


def test_recorded_cases_are_found_in_any_folder(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "truth.json").write_text(json.dumps({}))
    assert cases_in([tmp_path]) == [tmp_path / "a", tmp_path / "b"]
    assert cases_in([tmp_path / "b"]) == [tmp_path / "b"]
