"""The likely cause in the message about an incident."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.objectives import Objective
from alerts.openslo import load
from cli.likely_cause import LikelyCauses
from diagnosis.causes.claim import Evidence, Lever
from diagnosis.explanation import Cause, Explanation, Verdict
from diagnosis.question import Metric, Question
from store.database import open_database
from store.errors import StoreUnavailable
from store.incidents import IncidentRow
from store.writer import Writer
from telemetry.requests import RequestTimeline

CHAT = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: chat
  indicator:
    metadata: {name: chat-good}
    spec:
      ratioMetric:
        counter: true
        good: {metricSource: {type: tailspan, spec: {good: "GOOD"}}}
        total: {metricSource: {type: tailspan, spec: {where: "model == 'm'"}}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.99}]
"""
BEGAN_S = 1_790_000_000


def _incident(**changed: Any) -> IncidentRow:
    given: dict[str, Any] = {
        "slo": "chat",
        "severity": "page",
        "began_unix_s": BEGAN_S,
        "fired_unix_s": BEGAN_S + 60,
        "last_unix_s": BEGAN_S + 60,
        "peak_unix_s": BEGAN_S + 60,
        "ended_unix_s": None,
        "peak_burn": "20",
        "budget_spent": None,
    }
    return IncidentRow(**{**given, **changed})


class Asked:
    """An explainer that always finds the same, and remembers what it was asked."""

    def __init__(self, causes: int = 1) -> None:
        self.questions: list[Question] = []
        self.causes = causes

    def __call__(
        self, _engine: Engine, question: Question, objectives: Sequence[Objective]
    ) -> Explanation:
        """Note the question, and answer."""
        self.questions.append(question)
        self.objectives = objectives
        cause = Cause(
            id="kv_cache_exhausted",
            share=0.8,
            evidence=[Evidence("x", 0.0, 1.0)],
            levers=[Lever("store keys and values in 8 bits", "--kv-cache-dtype fp8")],
            where={"replica": "r0"},
        )
        return Explanation(question, Verdict.INCIDENT, 900, 900, 30, causes=(cause,) * self.causes)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """An empty store."""
    return open_database(f"sqlite:///{tmp_path}/tailspan.db")


@pytest.fixture
def objective(tmp_path: Path) -> Callable[[str], Objective]:
    """An objective that calls this good."""

    def make(good: str) -> Objective:
        file = tmp_path / "chat.yaml"
        file.write_text(CHAT.replace("GOOD", good))
        (found,) = load([file]).objectives
        return found

    return make


def test_the_sentence_says_how_much_what_where_and_what_to_try(
    engine: Engine, objective: Callable[[str], Objective]
) -> None:
    """All that a person woken at night can use, in one line."""
    asked = Asked()
    told = LikelyCauses(engine, asked)(objective("tpot_s <= 0.05"), _incident(), BEGAN_S + 60)
    assert told == (
        "80% of the growth of TPOT: the KV cache is full: requests wait for blocks although the"
        " batch has places (replica r0). Try: store keys and values in 8 bits,"
        " --kv-cache-dtype fp8."
    )
    (question,) = asked.questions
    assert question.metric is Metric.TPOT
    assert question.window.seconds == 300
    assert question.baseline.seconds == 1_800
    assert question.baseline.to_unix_ns == question.window.from_unix_ns
    assert question.where == {"model": "m"}


def test_it_is_not_asked_again_at_each_evaluation(
    engine: Engine, objective: Callable[[str], Objective]
) -> None:
    """Every request of half an hour is read for it."""
    asked = Asked()
    causes, chat = LikelyCauses(engine, asked), objective("ttft_s <= 0.5")
    for second in range(0, 600, 15):
        assert causes(chat, _incident(), BEGAN_S + second)
    assert len(asked.questions) == 2
    over = _incident(ended_unix_s=BEGAN_S + 900)
    asked.causes = 0
    assert causes(chat, over, BEGAN_S + 1_000), "what was found is told with the end, too"


def test_no_cause_is_no_sentence(engine: Engine, objective: Callable[[str], Objective]) -> None:
    """Neither where the diagnosis abstains, nor where no latency was promised."""
    chat = objective("ttft_s <= 0.5")
    assert LikelyCauses(engine, Asked(causes=0))(chat, _incident(), BEGAN_S) is None
    asked = Asked()
    finished = objective("outcome == 'stop'")
    assert LikelyCauses(engine, asked)(finished, _incident(), BEGAN_S) is None
    assert not asked.questions


def test_a_store_that_is_away_holds_up_no_message(
    engine: Engine, objective: Callable[[str], Objective]
) -> None:
    """The message goes out without its cause."""

    def away(*_: object) -> Explanation:
        raise StoreUnavailable("gone")

    assert LikelyCauses(engine, away)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S) is None


def test_a_real_store_is_asked(
    engine: Engine,
    objective: Callable[[str], Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """From rows to the sentence."""
    queue = dict.fromkeys(("queue_seats_s", "queue_budget_s", "queue_held_s", "queue_step_s"), 0.0)
    rows = []
    for number in range(2_100):
        waited_s = 2.0 if number >= 1_800 else 0.0
        rows.append(
            request_row(
                number,
                received_unix_ns=(BEGAN_S - 1_800 + number) * 10**9,
                model="m",
                streamed=True,
                frontend_s=0.01,
                queue_s=waited_s,
                queue_kv_s=waited_s,
                prefill_s=0.05,
                ttft_s=0.07 + waited_s,
                e2e_s=0.6 + waited_s,
                prompt_tokens=100,
                output_tokens=20,
                **queue,
            )
        )
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    told = LikelyCauses(engine)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S + 300)
    assert told is not None
    assert told.startswith("100% of the growth of TTFT: the KV cache is full")
