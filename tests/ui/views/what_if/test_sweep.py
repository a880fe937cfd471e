import re
from dataclasses import replace

import pytest

from analysis.corrected_prediction import Predicted, Reproduced
from analysis.what_if import PredictedAttainment, WhatIfAnswer
from analysis.what_if_search import SweepPoint
from telemetry.window import Window
from ui.kit import colours
from ui.kit.downloads import csv_of
from ui.views.what_if import charts
from ui.views.what_if.read import SweepAnswer
from ui.views.what_if.words import present, sweep_notes, sweep_sentence, sweep_table

NOW_S = 0.2
ANSWER = WhatIfAnswer(
    window=Window(0, 10**9),
    requests=1_000,
    edits=(),
    reproduced={"ttft_s": {"p99": Reproduced(NOW_S, NOW_S)}},
    refused=None,
    now={"ttft_s": {"p50": 0.1, "p99": NOW_S}},
    throughput_rps=10.0,
    all_rps=10.0,
    usd_per_hour=None,
    left_out={},
    simulated=True,
)


def swept(
    values: dict[str, float | None], name: str = "max_num_seqs", now: float = 24.0
) -> SweepAnswer:
    """Return a sweep with these P99s; None if the engines are overloaded at a value."""
    points = []
    for value, p99 in values.items():
        found = Predicted(p99 or 60.0, (p99 or 60.0) * 0.9, (p99 or 60.0) * 1.1)
        answer = replace(
            ANSWER,
            edits=[f"{name}={value}"],
            predicted={"ttft_s": {"p50": Predicted(0.0 if p99 == 0 else 0.1), "p99": found}},
            saturated=p99 is None,
        )
        points.append(SweepPoint(value, answer))
    return SweepAnswer(name, points, now, True)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            swept({"8": None, "32": 0.1005, "64": 0.1}),
            "With max_num_seqs=32, P99 of TTFT would be shortest: <b>100 ms</b>",
        ),
        (swept({"8": None, "32": 0.195}), "No value of max_num_seqs makes P99 of TTFT clearly"),
        (swept({"4": None, "8": None}), "<b>The engines cannot keep up</b> with any"),
        (
            swept({"1x": 0.2, "2x": 0.4, "4x": None}, "rate", 1.0),
            "The engines keep up with rate=2x at most: their queues do not grow. P99 of TTFT would"
            " be <b>400 ms</b>",
        ),
        (swept({"1x": 0.2, "2x": 0.4}, "rate", 1.0), "The engines keep up with rate=2x: their"),
    ],
)
def test_the_sentence_has_the_finding(found: SweepAnswer, sentence: str) -> None:
    assert sweep_sentence(found, "ttft_s").startswith(sentence)


def test_keeping_up_is_not_meeting_the_slos() -> None:
    found = swept({"1x": 0.2, "2x": 0.4, "4x": 0.9, "8x": None}, "rate", 1.0)
    assert "SLO" not in sweep_sentence(found, "ttft_s")

    def judged(*good: float) -> SweepAnswer:
        points = [
            replace(
                each,
                answer=replace(
                    each.answer,
                    objectives=[PredictedAttainment("chat", 0.99, 1.0, Predicted(ratio))],
                ),
            )
            for each, ratio in zip(found.points, good, strict=True)
        ]
        return replace(found, points=points)

    text = sweep_sentence(judged(1.0, 0.995, 0.6, 1.0), "ttft_s")
    assert "keep up with rate=4x at most: their queues do not grow." in text
    assert text.endswith("The SLOs are met up to rate=2x.")
    text = sweep_sentence(judged(0.98, 0.9, 0.6, 1.0), "ttft_s")
    assert text.endswith("No value meets the SLOs.")


def test_an_objective_is_shown_although_a_value_has_no_answer_for_it() -> None:
    found = swept({"16": 0.1, "4096": 0.1}, "max_model_len", 4096.0)
    few, all_ = found.points
    judged = [
        PredictedAttainment(slo, 0.99, now, Predicted(then))
        for slo, now, then in (("chat", 0.95, 0.85), ("batch", 0.96, 0.86))
    ]
    few = replace(few, answer=replace(few.answer, objectives=judged[1:], rejected=1_234))
    all_ = replace(all_, answer=replace(all_.answer, objectives=judged))
    found = replace(found, points=[few, all_])
    table = sweep_table(found, "ttft_s", lambda change: change)
    heads, now, of_few, of_all = (
        [cell for cell in re.sub("<[^>]*>", "\n", row).splitlines() if cell.strip()]
        for row in table.split("<tr>")[1:5]
    )
    assert {"batch good", "chat good", "rejected"} <= set(heads)
    assert {"95 %", "96 %"} <= set(now)
    assert {"86 %", "1,234"} <= set(of_few)
    assert "85 %" not in of_few
    assert {"85 %", "86 %", "0"} <= set(of_all)
    assert "1,234 requests would be rejected" in sweep_sentence(found, "ttft_s")
    assert any("rejected if" in note for note in sweep_notes(found))


def test_a_load_at_which_an_objective_has_no_answer_does_not_meet_the_slos() -> None:
    found = swept({"1x": 0.2, "2x": 0.2}, "prompt", 1.0)
    met = PredictedAttainment("chat", 0.99, 1.0, Predicted(1.0))
    one, two = (
        replace(each, answer=replace(each.answer, objectives=objectives))
        for each, objectives in zip(
            found.points, ([met, replace(met, slo="batch")], [met]), strict=True
        )
    )
    text = sweep_sentence(replace(found, points=[one, two]), "ttft_s")
    assert text.endswith("The SLOs are met up to prompt=1x.")


def test_a_saturated_value_has_a_mark_and_no_number() -> None:
    found = swept({"8": None, "32": 0.1, "64": 0.1})
    figure = charts.sweep(found, "ttft_s", colours.LIGHT)
    by_name = {each.name: each for each in figure.data}
    assert by_name["P99"].y[0] is None
    assert list(by_name["cannot keep up"].x) == ["8"]
    assert list(by_name["P99 now"].x) == ["24"]
    assert list(figure.layout.xaxis.categoryarray) == ["8", "24", "32", "64"]
    written = csv_of(figure)
    assert "P99,32,0.1,100 ms [90.0 ms to 110 ms]" in written
    assert "60" not in written, "the latency of a queue that grows depends on the window"
    rows = sweep_table(found, "ttft_s", lambda change: change).split("<tr>")
    assert "24 (now, measured)" in rows[2]
    assert rows[3].count("cannot keep up") == 2
    assert "1 min" not in rows[3]


def test_a_latency_of_zero_is_drawn_on_a_linear_axis() -> None:
    figure = charts.sweep(swept({"8": 0.3, "32": 0}), "ttft_s", colours.LIGHT)
    assert figure.layout.yaxis.type == "linear"
    assert charts.sweep(swept({"8": 0.3}), "ttft_s", colours.LIGHT).layout.yaxis.type == "log"


def test_the_present_value_is_written_as_the_values() -> None:
    assert present(swept({"8": 0.1, "32": 0.1})) == "24"
    assert present(swept({"0.5x": 0.1, "1.0x": 0.1}, "rate", 1.0)) == "1.0x"
    assert present(swept({"0.5x": 0.1, "2x": 0.1}, "rate", 1.0)) == "1x"
