import json
from pathlib import Path

import pytest

from rig.faults.evaluation import ExplanationResult, evaluate_explanation

TRUTH = {
    "cause": "engine_stall",
    "metric": "itl_max",
    "severity": 1.0,
    "seed": 1,
    "baseline": {"begun_s": 1.0, "ended_s": 2.0, "others_cpus": 0.25},
    "window": {"begun_s": 3.0, "ended_s": 4.0, "others_cpus": 0.5},
}


def answering(folder: Path, answer: str, status: int) -> Path:
    """Write a fake `tailspan` that prints this text and records its arguments."""
    command = folder / "tailspan"
    command.write_text(f"#!/bin/sh\necho \"$@\" > {folder}/asked\necho '{answer}'\nexit {status}\n")
    command.chmod(0o755)
    return command


def case(folder: Path, **changed: object) -> Path:
    (folder / "truth.json").write_text(json.dumps({**TRUTH, **changed}))
    return folder


def an_answer(*causes: str, verdict: str = "incident") -> str:
    named = [{"id": c, "share": 0.5} for c in causes]
    return json.dumps({"verdict": verdict, "excess_s": 0.2, "baseline_s": 0.1, "causes": named})


def ask(tmp_path: Path, answer: str, status: int = 1, **changed: object) -> ExplanationResult:
    return evaluate_explanation(case(tmp_path, **changed), answering(tmp_path, answer, status))


def test_right_is_the_true_cause_first(tmp_path: Path) -> None:
    found = ask(tmp_path, an_answer("engine_stall", "preemption"))
    assert found.right
    assert found.found == ("engine_stall", "preemption")
    assert (found.share, found.excess_s) == (0.5, 0.2)
    assert found.others_cpus == (0.25, 0.5)


def test_second_is_wrong(tmp_path: Path) -> None:
    assert not ask(tmp_path, an_answer("preemption", "engine_stall")).right


def test_both_of_two_faults_must_be_among_the_first_three(tmp_path: Path) -> None:
    pair = "engine_stall+longer_outputs"
    both = an_answer("longer_outputs", "preemption", "engine_stall")
    assert ask(tmp_path, both, cause=pair).right
    assert not ask(tmp_path, an_answer("longer_outputs"), cause=pair).right


def test_without_a_fault_only_no_incident_is_right(tmp_path: Path) -> None:
    quiet = an_answer(verdict="no_incident")
    assert ask(tmp_path, quiet, 0, cause="no_incident").right
    assert not ask(tmp_path, an_answer(), cause="no_incident").right
    doubt = an_answer(verdict="insufficient_data")
    assert not ask(tmp_path, doubt, 0, cause="no_incident").right


def test_the_question_is_the_truths_stretches_and_latency(tmp_path: Path) -> None:
    ask(tmp_path, an_answer())
    asked = (tmp_path / "asked").read_text()
    assert "--metric itl_max" in asked
    assert "--from 3.0 --to 4.0 --baseline 1.0/2.0" in asked
    assert "engine_stall" not in asked


def test_a_failing_command_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="tailspan explain"):
        ask(tmp_path, "", 2)
