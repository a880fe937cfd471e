import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine

from analysis.compare.answer import CompareAnswer
from analysis.compare.decision import CompareDecision
from analysis.compare.intervals import Interval
from analysis.compare.parts import PercentileParts
from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.total_change import TotalChange
from analysis.compare.verdict import CompareVerdict
from benchmarks._compare_truth import TrueChange, WindowLatencies, truth_of
from benchmarks._compare_verdicts import (
    CompareCase,
    JudgedAnswer,
    cases_of,
    false_verdicts,
    line,
    summary,
)
from benchmarks._compare_windows import (
    CHANGED,
    CONFIGURATIONS,
    FIRST,
    SAME,
    USUAL,
    ServedWindow,
    WindowsError,
    read_windows,
    record,
    traffics,
)
from benchmarks.compare_real import CHANGES, main
from rig.faults.recording import RecordedInterval
from telemetry.window import Window

WORSE, BETTER = CompareVerdict.WORSE, CompareVerdict.BETTER
NO_WORSE, UNDECIDED = CompareVerdict.NO_WORSE, CompareVerdict.UNDECIDED


def windows(chance: np.random.Generator, factor: float) -> tuple[WindowLatencies, WindowLatencies]:
    """Return two windows with equal arrivals; the second's latencies are `factor` times larger."""
    at_s = np.sort(chance.uniform(0, 75, 450))
    work = chance.exponential(size=450) + 1
    sides = []
    for times in (1.0, factor):
        blocks = np.exp(chance.normal(0, 0.05, 15))[(at_s // 5).astype(int)]
        sides.append(
            WindowLatencies(at_s, times * work * blocks * np.exp(chance.normal(0, 0.2, 450)))
        )
    return sides[0], sides[1]


def test_the_interval_of_the_truth_contains_it() -> None:
    chance = np.random.default_rng(7)
    for q in (0.5, 0.95):
        found = [truth_of(*windows(chance, 1.2), q, 75.0) for _ in range(30)]
        assert np.mean([each.low <= 0.2 <= each.high for each in found]) >= 0.9
        assert np.mean([each.ratio for each in found]) == pytest.approx(0.2, abs=0.02)


def test_blocks_without_requests_are_possible() -> None:
    at_s, value_s = np.array([1.0, 2.0, 70.0]), np.array([1.0, 1.0, 1.0])
    found = truth_of(WindowLatencies(at_s, value_s), WindowLatencies(at_s, 2 * value_s), 0.5, 75.0)
    assert found.ratio == found.low == found.high == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("truth", "results"),
    [
        (
            TrueChange(0.2, 0.1, 0.3),
            {WORSE: "right", BETTER: "WRONG", NO_WORSE: "WRONG", UNDECIDED: "missed"},
        ),
        (TrueChange(-0.2, -0.3, -0.1), {WORSE: "WRONG", BETTER: "right", NO_WORSE: "missed"}),
        (
            TrueChange(0.0, -0.03, 0.03),
            {WORSE: "WRONG", BETTER: "WRONG", NO_WORSE: "right", UNDECIDED: "right"},
        ),
        (
            TrueChange(0.04, -0.03, 0.1),
            {WORSE: "unclear", BETTER: "WRONG", NO_WORSE: "unclear", UNDECIDED: "unclear"},
        ),
    ],
)
def test_a_verdict_is_judged_by_the_interval_of_the_truth(
    truth: TrueChange, results: dict[CompareVerdict, str]
) -> None:
    for verdict, result in results.items():
        assert truth.judge(verdict, 0.05) == result


def test_no_question_is_about_two_windows_with_the_same_arrivals() -> None:
    cases = cases_of(CHANGES)
    assert len(cases) == len(set(cases)) == 12
    for case in cases:
        assert case.before[1] != case.after[1]
        assert case.truth[0][1] == case.truth[1][1]
        assert [each[0] for each in case.truth] == [case.before[0], case.after[0]]


def test_only_other_arguments_are_a_change() -> None:
    changed = {case.after[0] for case in cases_of(CHANGES) if case.changed} - {USUAL}
    assert changed == {"budget", "compiled"}
    assert CONFIGURATIONS["restarted"] == CONFIGURATIONS[USUAL]


def test_the_other_mix_has_a_new_tenant_longer_prompts_and_a_higher_rate() -> None:
    drawn = {name: each.arrivals(name, 150.0) for name, each in traffics(6.0).items()}
    tenants = {
        name: {call.headers["x-tenant-id"] for _, call in calls} for name, calls in drawn.items()
    }
    assert tenants[CHANGED] - tenants[FIRST] == {"eve"}
    assert tenants[SAME] == tenants[FIRST]
    assert [prompt for _, prompt in drawn[SAME]] != [prompt for _, prompt in drawn[FIRST]]
    assert len(drawn[CHANGED]) > 1.1 * len(drawn[SAME]) > 0
    lengths = {
        name: np.mean([len(call.prompt) for _, call in calls]) for name, calls in drawn.items()
    }
    assert lengths[CHANGED] > 1.05 * lengths[SAME]
    assert lengths[SAME] == pytest.approx(lengths[FIRST], rel=0.02)


def found(verdict: CompareVerdict, after: str = "budget", truth: float = 0.2) -> JudgedAnswer:
    side = CompareSide(Window(0, 10**9))
    question = CompareQuestion(side, CompareSide(Window(10**9, 2 * 10**9)))
    parts = PercentileParts(0.100, 0.130, 0.130, 0.105, 0.110)
    decision = CompareDecision(verdict, 0.100, 0.130, parts, Interval(0.1, 0.25), 0.9, 300.0)
    answer = CompareAnswer(
        question, decision, 400, 400, None, None, TotalChange(0.03), (), (), False
    )
    return JudgedAnswer(
        CompareCase((USUAL, FIRST), (after, CHANGED)),
        TrueChange(truth, truth - 0.02, truth + 0.02),
        answer,
    )


def test_a_line_has_the_truth_the_change_and_the_result() -> None:
    assert " ".join(line(found(WORSE)).split()) == (
        "usual budget other mix ttft p95 +20.0 [+18.0, +22.0] +30% +18.2 [+10.0, +25.0] +30% 90%"
        " worse: right"
    )


def test_a_line_without_a_comparison_has_no_numbers() -> None:
    one = found(UNDECIDED)
    decision = CompareDecision(UNDECIDED, 0.1, 0.13, None, None, 0.05, 20.0)
    total = TotalChange(None, "no samples")
    reported = line(replace(one, answer=replace(one.answer, decision=decision, total=total)))
    assert reported.split()[9:] == ["+30%", "-", "-", "5%", "undecided:", "missed"]


def test_the_bar_needs_all_changes_and_no_false_verdict() -> None:
    good = [found(WORSE), found(NO_WORSE, "restarted", 0.0)]
    lines, met = summary(good)
    assert met
    assert lines[0].startswith("A/A: 1 of 1 verdicts right, 0 changes not found, 0 wrong")
    assert lines[-1].endswith(": met")
    assert "1 of 2 intervals contain" in lines[2]
    for bad in (found(UNDECIDED), found(BETTER), found(WORSE, "restarted", 0.0)):
        assert not summary([*good, bad])[1]


def test_the_bar_needs_changes_whose_truth_is_known() -> None:
    same = found(NO_WORSE, "restarted", 0.0)
    unknown = replace(found(UNDECIDED), truth=TrueChange(0.1, -0.1, 0.3))
    for few in ([], [same], [found(WORSE)], [same, unknown]):
        assert not summary(few)[1]


def test_an_a_a_verdict_worse_misses_the_bar_even_if_the_machine_became_slower() -> None:
    lines, met = summary([found(WORSE, "restarted", 0.2)])
    assert "(1 worse, 0 better, 0 no_worse, 0 undecided)" in lines[0]
    assert not met


def test_only_windows_of_the_same_process_are_compared_without_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = iter([NO_WORSE, WORSE, UNDECIDED, NO_WORSE, BETTER, *[NO_WORSE] * 3])
    monkeypatch.setattr(
        "benchmarks._compare_verdicts.answer_compare",
        lambda engine, question: found(next(verdicts)).answer,
    )
    windows = {
        each: ServedWindow(*each, RecordedInterval(10.0 * n, 10.0 * n + 9, 0.0), 1, 0)
        for n, each in enumerate([(USUAL, FIRST), (USUAL, SAME), ("budget", SAME)])
    }
    lines, asked = false_verdicts(create_engine("sqlite://"), windows, looks=True)
    assert asked == 8
    assert lines == [
        "usual: first → same mix, ttft p95: worse +18.2 [+10.0, +25.0]",
        "usual: same mix → first, ttft p50: better +18.2 [+10.0, +25.0]",
    ]


def test_windows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = {
        "configuration": USUAL,
        "traffic": FIRST,
        "stretch": {"begun_s": 10.0, "ended_s": 11.5, "others_cpus": 0.1},
        "answered": 5,
        "failed": 0,
    }
    (tmp_path / "windows.json").write_text(json.dumps([written]))
    read = read_windows(tmp_path)
    assert read == [ServedWindow(USUAL, FIRST, RecordedInterval(10.0, 11.5, 0.1), 5, 0)]
    assert read[0].window == Window(10 * 10**9, 11_500_000_000)


@pytest.mark.parametrize(
    "text",
    ["", "3", "[3]", '[{"stretch": {}}]', '[{"stretch": 3}]', '[{"other": 1}]'],
)
def test_a_malformed_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "windows.json").write_text(text)
    with pytest.raises(WindowsError, match=r"windows\.json is not a list of windows"):
        read_windows(tmp_path)


def test_instants_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    counted_range = {"begun_s": "yesterday", "ended_s": 11.5, "others_cpus": 0.1}
    one = {"configuration": USUAL, "traffic": FIRST, "answered": 5, "failed": 0}
    (tmp_path / "windows.json").write_text(json.dumps([{**one, "stretch": counted_range}]))
    with pytest.raises(WindowsError, match=r"windows\.json"):
        read_windows(tmp_path)


def test_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "windows.json").write_text("[]")
    with pytest.raises(WindowsError, match="already has a recording"):
        record([], tmp_path, seed=1, rate_per_s=6.0, seconds=1.0, log_line=print)


@pytest.mark.parametrize(
    "words",
    [
        ["--rate", "nan"],
        ["--rate", "21"],
        ["--seconds", "39"],
        ["--seconds", "long"],
        ["faster"],
        ["--keep", "a", "--recorded", "b"],
    ],
)
def test_other_values_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "error" in capsys.readouterr().err


def test_a_folder_without_a_recording_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--recorded", str(tmp_path)]) == 2
    assert "windows.json" in capsys.readouterr().err
