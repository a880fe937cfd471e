import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.objectives import Objective
from alerts.openslo.reader import load
from analysis.answer_process import MAX_S, ChildAnswer, nothing
from analysis.incident import IncidentVerdict, incident_verdict
from analysis.incident_answer import VERSION, StoredAnswer, store_verdict, stored_answer
from diagnosis.claim import Evidence, Lever
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict, Replay, ShareMethod
from diagnosis.question import Metric, Question, Span
from server import likely_cause
from server.likely_cause import (
    DueIncident,
    IncidentAnswers,
    Tried,
    VerdictError,
    compute_verdict_in_child,
    is_due,
)
from store.alerting.incident_answers import Phase
from store.alerting.incidents import store_evaluation
from store.writer import Writer
from telemetry import child_process
from telemetry.incidents import IncidentRow
from telemetry.requests import RequestTimeline
from telemetry.store_errors import StoreUnavailable
from tests.chat_objective import chat_openslo

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
    """An explainer with a fixed result that records its questions."""

    def __init__(self, causes: int = 1) -> None:
        self.questions: list[Question] = []
        self.causes = causes

    def __call__(
        self, _engine: Engine, question: Question, objectives: Sequence[Objective]
    ) -> Explanation:
        self.questions.append(question)
        self.objectives = objectives
        cause = Cause(
            id="kv_cache_exhausted",
            share=0.8,
            evidence=[Evidence("x", 0.0, 1.0)],
            levers=[Lever("store keys and values in 8 bits", "--kv-cache-dtype fp8")],
            where={"replica": "r0"},
        )
        return Explanation(
            question, ExplanationVerdict.INCIDENT, 900, 900, 30, causes=(cause,) * self.causes
        )


@pytest.fixture
def objective(tmp_path: Path) -> Callable[[str], Objective]:
    def make(good: str) -> Objective:
        file = tmp_path / "chat.yaml"
        file.write_text(chat_openslo(good, where="model == 'm'"))
        (found,) = load([file]).objectives
        return found

    return make


def sentence(engine: Engine, asked: Asked, objective: Objective, at_s: int) -> str | None:
    found = incident_verdict(engine, objective, _incident(), at_s, asked)
    return None if found is None else found.sentence


def test_the_sentence_is_complete(engine: Engine, objective: Callable[[str], Objective]) -> None:
    asked = Asked()
    assert sentence(engine, asked, objective("tpot_s <= 0.05"), BEGAN_S + 60) == (
        "Probably most of the growth of TPOT: the KV cache is full: requests wait for blocks"
        " although the batch has free slots (replica r0). Try: store keys and values in 8 bits,"
        " --kv-cache-dtype fp8."
    )
    (question,) = asked.questions
    assert question.metric is Metric.TPOT
    assert question.window.seconds == 300
    assert question.baseline.seconds == 1_800
    assert question.baseline.to_unix_ns == question.window.from_unix_ns
    assert question.where == {"model": "m"}


def test_no_cause_is_no_sentence(engine: Engine, objective: Callable[[str], Objective]) -> None:
    assert sentence(engine, Asked(causes=0), objective("ttft_s <= 0.5"), BEGAN_S) is None
    asked = Asked()
    assert sentence(engine, asked, objective("outcome == 'stop'"), BEGAN_S) is None
    assert not asked.questions


NOW_S = BEGAN_S + 75
EXPLANATION = Explanation(
    Question(
        Metric.TTFT,
        Span((BEGAN_S - 240) * 10**9, (BEGAN_S + 60) * 10**9),
        Span((BEGAN_S - 2_040) * 10**9, (BEGAN_S - 240) * 10**9),
        {"model": "m"},
    ),
    ExplanationVerdict.INCIDENT,
    900,
    900,
    30,
    causes=[Cause("tenant_flood", 0.9, (), (), {"tenant": "a"})],
)
REPLAYED = replace(
    EXPLANATION,
    causes=[replace(EXPLANATION.causes[0], low=0.8, high=1.0)],
    method=ShareMethod.COUNTERFACTUAL,
    replay=Replay(900, 0.1, 0.1, 1.0, 1.0),
)
TOO_LONG = replace(EXPLANATION, not_replayed=f"it took longer than {MAX_S:g} s")


class Asks:
    """Answers at once, and records the questions."""

    def __init__(self) -> None:
        self.answer: Explanation | Exception = REPLAYED
        self.asked: list[tuple[str, int, int]] = []

    def __call__(self, _objective: Objective, incident: IncidentRow, at_s: int) -> IncidentVerdict:
        self.asked.append((incident.severity, incident.fired_unix_s - BEGAN_S, at_s - BEGAN_S))
        if isinstance(self.answer, Exception):
            raise self.answer
        return IncidentVerdict(self.answer)


@pytest.fixture
def asks() -> Asks:
    return Asks()


def answers(engine: Engine, chat: Objective, asks: Asks, now_s: int = NOW_S) -> IncidentAnswers:
    return IncidentAnswers(engine, [chat], compute_verdict=asks, clock_s=lambda: now_s, first_s=0.0)


def evaluated(engine: Engine, *rows: IncidentRow) -> None:
    store_evaluation(engine, "chat", max(row.last_unix_s for row in rows), rows)


def _later(age_s: int, **changed: Any) -> IncidentRow:
    return _incident(last_unix_s=BEGAN_S + age_s, **changed)


def test_the_answer_is_stored_when_the_incident_alerts_and_then_only_read(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    assert causes.sentence(chat, _incident(), NOW_S) is None
    causes.step()
    assert asks.asked == [], "there is no incident"
    evaluated(engine, _incident())
    for _ in range(3):
        causes.step()
    assert asks.asked == [("page", 60, 60)]
    reported = "90% [80% to 100%] of the growth of TTFT: one tenant sends"
    assert str(causes.sentence(chat, _incident(), NOW_S)).startswith(reported)
    again = answers(engine, chat, asks)
    again.step()
    assert len(asks.asked) == 1, "a restart computes nothing again"


def test_it_is_computed_again_at_twice_the_age_and_after_the_end(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    ages = range(60, 2_000, 15)
    for age_s in ages:
        evaluated(engine, _later(age_s))
        causes.step()
    computed = [at_s for _, _, at_s in asks.asked]
    assert computed == [60, 600, 1_200]
    evaluated(engine, _later(2_000, ended_unix_s=BEGAN_S + 1_950))
    for _ in range(3):
        causes.step()
    assert [at_s for _, _, at_s in asks.asked][3:] == [1_950]
    found = stored_answer(engine, chat, _incident(ended_unix_s=BEGAN_S + 1_950))
    assert found is not None
    assert found.phase is Phase.ENDED


def test_only_the_process_that_evaluates_computes_and_stores(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    """A process may lose the lease on evaluation while it computes an answer."""
    chat, held = objective("ttft_s <= 0.5"), [True, False]
    causes = IncidentAnswers(
        engine, [chat], compute_verdict=asks, evaluates=lambda: held.pop(0), clock_s=lambda: NOW_S
    )
    evaluated(engine, _incident())
    held.append(False)
    causes.step()
    assert len(asks.asked) == 1
    assert stored_answer(engine, chat, _incident()) is None
    held.append(False)
    causes.step()
    assert len(asks.asked) == 1


def test_an_open_page_is_computed_first(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    over, before = _before(500), _before(900, severity="ticket")
    evaluated(engine, over, before, _incident())
    answers(engine, objective("ttft_s <= 0.5"), asks).step()
    assert asks.asked == [("page", 60, 60), ("page", -500, -400), ("ticket", -900, -800)]


def _before(since_s: int, **changed: Any) -> IncidentRow:
    """Return an incident of 100 s that began before the others."""
    began_s = BEGAN_S - since_s
    times = {"began_unix_s": began_s, "fired_unix_s": began_s, "ended_unix_s": began_s + 100}
    return _incident(**times, **changed)


def test_a_page_and_a_ticket_that_overlap_have_one_answer(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    ticket = _incident(severity="ticket")
    evaluated(engine, ticket, _incident())
    for _ in range(3):
        causes.step()
    assert asks.asked == [("page", 60, 60)]
    assert causes.sentence(chat, ticket, NOW_S) == causes.sentence(chat, _incident(), NOW_S)


def test_an_old_incident_an_unknown_objective_and_one_without_latency_are_not_asked(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    evaluated(engine, _incident(ended_unix_s=NOW_S - 90_000), _incident(slo="gone"))
    answers(engine, objective("ttft_s <= 0.5"), asks).step()
    evaluated(engine, _incident())
    answers(engine, objective("outcome == 'stop'"), asks).step()
    assert asks.asked == []


def test_a_failed_computation_is_repeated_after_some_minutes(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    asks.answer = VerdictError("it took longer than 120 s")
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    for age_s in range(60, 700, 15):
        evaluated(engine, _later(age_s))
        causes.step()
    assert [at_s for _, _, at_s in asks.asked] == [60, 360, 660]
    assert causes.task.failures == 3
    asks.answer = REPLAYED
    evaluated(engine, _later(960))
    causes.step()
    assert causes.task.problem is None
    assert causes.sentence(chat, _incident(), NOW_S) is not None


def test_an_ended_incident_is_tried_once_unless_the_database_was_not_available(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    chat, over = objective("ttft_s <= 0.5"), _incident(ended_unix_s=BEGAN_S + 60)
    asks.answer = VerdictError("its process ended with status 1")
    causes = answers(engine, chat, asks)
    evaluated(engine, over)
    for _ in range(3):
        causes.step()
    assert len(asks.asked) == 1
    causes = answers(engine, chat, asks)
    asks.answer = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        causes.step()
    asks.answer = REPLAYED
    causes.step()
    assert stored_answer(engine, chat, over) is not None


def test_a_verdict_without_a_cause_is_stored_only_after_the_end(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    asks.answer = replace(EXPLANATION, causes=())
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    evaluated(engine, _incident())
    causes.step()
    assert stored_answer(engine, chat, _incident()) is None
    over = _incident(ended_unix_s=BEGAN_S + 60)
    evaluated(engine, over)
    causes.step()
    found = stored_answer(engine, chat, over)
    assert found is not None
    assert found.verdict.sentence is None


def test_shares_by_accounting_do_not_replace_a_replay_while_the_incident_is_open(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    chat = objective("ttft_s <= 0.5")
    causes = answers(engine, chat, asks)
    for age_s, answer, replayed in (
        (60, EXPLANATION, False),
        (600, REPLAYED, True),
        (1_200, EXPLANATION, True),
    ):
        asks.answer = answer
        evaluated(engine, _later(age_s))
        causes.step()
        found = stored_answer(engine, chat, _incident())
        assert found is not None
        assert found.replayed is replayed
    assert len(asks.asked) == 3


def test_an_answer_of_an_older_version_or_without_its_replay_is_computed_again() -> None:
    old = StoredAnswer(NOW_S, VERSION - 1, Phase.OPEN, "", IncidentVerdict(REPLAYED))
    assert is_due(_incident(), old, None, NOW_S)
    assert not is_due(_incident(), replace(old, version=VERSION), None, NOW_S)
    assert not is_due(_incident(), old, Tried(60, Phase.OPEN, NOW_S), NOW_S), "it was tried"
    over = _incident(ended_unix_s=NOW_S)
    assert is_due(over, replace(old, phase=Phase.ENDED), None, NOW_S)
    never = replace(TOO_LONG, not_replayed="a replay does not reproduce the growth")
    for verdict, due in ((TOO_LONG, True), (never, False)):
        answer = StoredAnswer(NOW_S, VERSION, Phase.ENDED, "", IncidentVerdict(verdict))
        assert is_due(over, answer, None, NOW_S) is due


def test_a_replay_that_took_too_long_is_repeated_ever_less_often(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    """If the answer after the incident's end has no replay, it does not replace an earlier answer
    with a replay."""
    chat, now = objective("ttft_s <= 0.5"), [float(NOW_S)]
    causes = IncidentAnswers(
        engine, [chat], compute_verdict=asks, clock_s=lambda: now[0], first_s=0.0
    )
    computed: list[float] = []

    def run(seconds: int, **changed: Any) -> StoredAnswer:
        for _ in range(0, seconds, 15):
            number = len(asks.asked)
            evaluated(engine, _incident(**changed))
            causes.step()
            computed.extend([now[0] - NOW_S] * (len(asks.asked) - number))
            now[0] += 15
        found = stored_answer(engine, chat, _incident(**changed))
        assert found is not None
        return found

    asks.answer = TOO_LONG
    assert run(600).replay_took_too_long
    assert computed == [0, 120, 360]
    asks.answer = REPLAYED
    assert run(600).replayed
    assert computed == [0, 120, 360, 840], "a replay succeeded"
    asks.answer, over = TOO_LONG, {"ended_unix_s": BEGAN_S + 60}
    assert run(600, **over).replayed
    assert computed[4:] == [1_200, 1_320, 1_560]
    asks.answer = REPLAYED
    assert run(1_200, **over).phase is Phase.ENDED
    assert computed[7:] == [2_040]


def test_the_thread_computes_after_an_evaluation_and_survives_an_unreadable_database(
    engine: Engine, objective: Callable[[str], Objective], asks: Asks
) -> None:
    """A new answer wakes the notifier."""
    chat, reported = objective("ttft_s <= 0.5"), threading.Event()
    causes = IncidentAnswers(
        engine, [chat], compute_verdict=asks, found=reported.set, clock_s=lambda: NOW_S, first_s=0.0
    )
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE slo_incidents RENAME TO away")
    causes.start()
    causes.evaluated()
    for _ in range(3_000):
        if causes.task.failures:
            break
        threading.Event().wait(0.01)
    assert causes.task.problem == "StoreUnavailable"
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO slo_incidents")
    evaluated(engine, _incident())
    causes.evaluated()
    assert reported.wait(30)
    causes.stop()
    assert causes.task.last_success_unix_s is not None
    assert asks.asked == [("page", 60, 60)]


def test_a_process_without_a_replay_or_an_answer_has_its_reason(
    engine: Engine, objective: Callable[[str], Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an answer that failed because of the database is computed again after the end."""
    chat, problem = objective("ttft_s <= 0.5"), "it took longer than 120 s"
    verdict = IncidentVerdict(EXPLANATION, (replace(EXPLANATION, causes=()),))
    compute_verdict = compute_verdict_in_child(engine)

    def answer(*given: Any, **about: Any) -> IncidentVerdict:
        found = ChildAnswer(*given, **about)
        monkeypatch.setattr(likely_cause, "answer_in_child", lambda *_, **__: found)
        return compute_verdict(chat, _incident(), BEGAN_S)

    for reason in (None, problem):
        found = answer(verdict, reason)
        assert found.first.not_replayed == reason
        assert found.others[0].not_replayed is None
        assert str(found.sentence).startswith("Probably most of the growth of TTFT")
    with pytest.raises(VerdictError, match=problem):
        answer(None, problem)
    with pytest.raises(StoreUnavailable, match="locked"):
        answer(None, "the database cannot be read: locked", unavailable=True)
    causes = IncidentAnswers(engine, [chat], compute_verdict=compute_verdict)
    with pytest.raises(StoreUnavailable, match="locked"):
        causes._compute(DueIncident(chat, _incident(), BEGAN_S))
    assert causes._tried == {}


def test_the_shares_by_replay_of_all_latencies_follow_the_shares_by_accounting(
    engine: Engine, objective: Callable[[str], Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replays(_engine: Engine, explanation: Explanation, *_: Any) -> Explanation:
        causes = [replace(each, share=0.9, low=0.8, high=0.95) for each in explanation.causes]
        return replace(explanation, causes=causes)

    asked = Asked()
    monkeypatch.setattr(child_process, "lower_priority", lambda _: None)
    monkeypatch.setattr(likely_cause, "with_replayed_shares", replays)
    monkeypatch.setattr(likely_cause, "incident_verdict", partial(incident_verdict, explain=asked))

    def found(good: str) -> list[IncidentVerdict]:
        verdicts = likely_cause.verdicts(
            objective(good), _incident(), BEGAN_S, engine, nothing, nothing
        )
        return list(verdicts)

    first, second, third = found("ttft_s <= 0.5 and tpot_s <= 0.05")
    assert str(first.sentence).startswith("Probably most of the growth of TTFT: the KV cache is")
    reported = "90% [80% to 95%] of the growth of TTFT: the KV cache is full"
    assert str(second.sentence).startswith(reported)
    assert str(third.sentence).startswith(reported)
    assert [each.others[0].causes[0].low for each in (first, second, third)] == [None, None, 0.8]
    assert found("outcome == 'stop'") == []


def test_a_real_store_is_asked(
    engine: Engine,
    objective: Callable[[str], Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
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
    chat = objective("ttft_s <= 0.5")
    found = compute_verdict_in_child(engine)(chat, _incident(), BEGAN_S + 300)
    store_verdict(engine, chat, _incident(), found, BEGAN_S + 315)
    stored = stored_answer(engine, chat, _incident())
    assert stored is not None
    reported = stored.verdict.sentence
    assert reported is not None
    assert reported.startswith("Probably most of the growth of TTFT: the KV cache is full")
