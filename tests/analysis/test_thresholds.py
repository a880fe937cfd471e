from pathlib import Path

import numpy as np
import pytest

from alerts.objectives import Objective
from alerts.openslo.reader import load
from analysis.thresholds import thresholds
from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.chat_objective import chat_openslo
from tests.diagnosis.making import labels

THREE = Requests(
    np.arange(3, dtype=np.int64),
    {"streamed": np.array([1.0, 0.0, np.nan]), "prompt_tokens": np.array([10.0, 100.0, 1_000.0])},
    {"tenant": labels(["acme", "globex", "acme"]), "model": labels(["m", "m", "n"])},
)


def objective(folder: Path, good: str, where: str = "streamed == true") -> Objective:
    file = folder / "chat.yaml"
    file.write_text(chat_openslo(good, where))
    (found,) = load([file]).objectives
    return found


def test_each_latency_has_its_own_threshold(tmp_path: Path) -> None:
    chat = objective(tmp_path, "ttft_s <= 0.5 and tpot_s < 0.05")
    (ttft,) = thresholds([chat], Metric.TTFT)
    assert (ttft.slo, ttft.seconds) == ("chat", 0.5)
    assert ttft.budget == pytest.approx(0.01)
    (tpot,) = thresholds([chat], Metric.TPOT)
    assert tpot.seconds == 0.05
    assert not thresholds([chat], Metric.E2E)


def test_an_alternative_condition_gives_no_threshold(tmp_path: Path) -> None:
    """Under each of these conditions, even a slow request can be good."""
    assert not thresholds([objective(tmp_path, "ttft_s <= 1 or e2e_s <= 9")], Metric.TTFT)
    assert not thresholds([objective(tmp_path, "ttft_s >= 1")], Metric.TTFT)


@pytest.mark.parametrize(
    ("where", "counted"),
    [
        ("streamed == true", [True, False, False]),
        ("not (streamed == true)", [False, True, False]),
        ("streamed is unknown", [False, False, True]),
        ("tenant in ('acme', 'hooli') and model == 'm'", [True, False, False]),
        ("tenant != 'acme'", [False, True, False]),
        ("prompt_tokens > 10 and prompt_tokens <= 1000", [False, True, True]),
        ("streamed == true or model == 'n'", [True, False, True]),
    ],
)
def test_only_requests_that_the_objective_selects_are_counted(
    tmp_path: Path, where: str, counted: list[bool]
) -> None:
    """An unknown value selects no request, as in `alerts.evaluation.request_verdicts`."""
    (found,) = thresholds([objective(tmp_path, "ttft_s <= 1", where)], Metric.TTFT)
    assert found.counts(THREE).tolist() == counted


def test_an_objective_on_an_unread_column_has_no_threshold(tmp_path: Path) -> None:
    """The diagnosis does not read the column `engine`, so it cannot select the objective's
    requests."""
    assert not thresholds([objective(tmp_path, "ttft_s <= 1", "engine == 1")], Metric.TTFT)


def test_the_first_content_has_a_threshold(tmp_path: Path) -> None:
    (found,) = thresholds([objective(tmp_path, "first_content_s <= 5")], Metric.FIRST_CONTENT)
    assert found.seconds == 5.0
