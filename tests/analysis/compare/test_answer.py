import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from alerts.openslo.reader import OBJECTIVES, load
from analysis.compare.answer import DECODE_ROWS, answer_compare, read_sides
from analysis.compare.as_json import as_json
from analysis.compare.question import CompareError, CompareQuestion, CompareSide
from analysis.compare.sentences import finding
from analysis.compare.verdict import CompareVerdict
from cli.render import text
from store.access.restricted import restricted
from store.database import open_database
from store.queries import newest_unix_ns
from telemetry.access import Access, Grant
from telemetry.requests import Outcome, RequestTimeline
from telemetry.store_errors import NotAllowed
from telemetry.window import Window
from tests.analysis.compare.two_windows import (
    AFTER,
    BEFORE,
    SECONDS,
    START_S,
    opened,
    put,
    simulated,
    store,
    store_canary,
    store_restarted,
    store_two_models,
)
from tests.store.joined.rows import START_NS as JOINED_START_NS
from tests.store.joined.test_user_requests import STATED, pair, store_rows

FAR = Window(10**18, 10**18 + 10**12)
FAR_LATER = Window(2 * 10**18, 2 * 10**18 + 10**12)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a database with two windows; steps take 20 % longer in the second one."""
    yield from opened(tmp_path_factory.mktemp("compare"), store)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a database with a window in which sim-1 is slower and runs another version."""
    yield from opened(tmp_path_factory.mktemp("canary"), store_canary)


def test_a_slower_server_is_worse_with_all_witnesses(engine: Engine) -> None:
    question = CompareQuestion(
        CompareSide(BEFORE), CompareSide(AFTER), "tpot", objectives=load([OBJECTIVES]).objectives
    )
    answer = answer_compare(engine, question)
    found = answer.decision
    assert found.verdict is CompareVerdict.WORSE
    assert found.change_ratio == pytest.approx(0.2, abs=0.02)
    assert answer.coefficients is not None
    assert answer.coefficients.pace.value == pytest.approx(1.2, abs=0.01)
    # In the replay of the server before the change, fewer requests run at once. The total change
    # includes this effect.
    assert answer.total.total_change_s is not None
    assert found.parts is not None
    assert answer.total.total_change_s > found.parts.change_s * 0.9
    (chat,) = [each for each in answer.objectives if each.slo == "chat"]
    assert chat.mix is not None
    assert chat.load is not None
    assert chat.change is not None
    assert chat.mix + chat.load + chat.change == pytest.approx(chat.after - chat.before)
    assert "% worse" in finding(answer, text.seconds)
    assert answer.simulated


def test_fewer_streamed_responses_do_not_make_ttft_worse(tmp_path: Path) -> None:
    """The first byte of a response that is not streamed is sent at its end."""

    def store_changed(url: str) -> None:
        after = simulated(START_S + 600, 6, 1.0)
        rows = [
            replace(each, streamed=False, ttft_s=each.e2e_s) if number % 2 else each
            for number, each in enumerate(after.requests)
        ]
        put(url, [simulated(START_S, 5, 1.0), replace(after, requests=rows)])

    for engine in opened(tmp_path, store_changed):
        question = CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), "ttft")
        answer = answer_compare(engine, question)
        assert answer.decision.verdict is not CompareVerdict.WORSE
        assert answer.requests_after == pytest.approx(6 * SECONDS / 2, rel=0.1)
        assert answer.total.total_change_s == pytest.approx(0, abs=0.02)
        tpot = CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), "tpot")
        assert answer_compare(engine, tpot, replay=False).requests_after > 0.9 * 6 * SECONDS


def test_new_failures_change_the_attainment(tmp_path: Path) -> None:
    """Failed requests have no latency, so they cannot be matched by the work around them."""

    def store_failing(url: str) -> None:
        after = simulated(START_S + 600, 6, 1.0)
        rows = [each if number % 5 else failed(each) for number, each in enumerate(after.requests)]
        put(url, [simulated(START_S, 5, 1.0), replace(after, requests=rows)])

    question = CompareQuestion(
        CompareSide(BEFORE), CompareSide(AFTER), "tpot", objectives=load([OBJECTIVES]).objectives
    )
    for engine in opened(tmp_path, store_failing):
        found = answer_compare(engine, question, replay=False).objectives
    (chat,) = [each for each in found if each.slo == "chat"]
    assert chat.after - chat.before == pytest.approx(-0.2, abs=0.05)
    assert chat.mix is not None
    assert chat.load is not None
    assert chat.change is not None
    assert chat.mix + chat.load + chat.change == pytest.approx(chat.after - chat.before)
    assert chat.change == pytest.approx(-0.2, abs=0.05)


def failed(request: RequestTimeline) -> RequestTimeline:
    return replace(
        request,
        outcome=Outcome.ERROR,
        ttft_s=None,
        itl_max_s=None,
        prefill_s=None,
        decode_s=None,
        output_tokens=0,
    )


def test_the_parts_of_the_json_sum_to_its_total(engine: Engine) -> None:
    for metric in ("tpot", "queue"):
        question = CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), metric, "p50")
        found = as_json(answer_compare(engine, question, replay=False))
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        parts = [found[f"{name}_s"] for name in ("mix", "load", "change")]
        assert sum(parts) == pytest.approx(found["total_s"], abs=1e-12), metric


def test_two_replicas_of_one_range_are_compared(engine: Engine) -> None:
    sides = [CompareSide(BEFORE, {"replica": name}) for name in ("sim-0", "sim-1")]
    answer = answer_compare(engine, CompareQuestion(sides[0], sides[1], "tpot"), replay=False)
    assert answer.decision.verdict is CompareVerdict.NO_WORSE
    assert answer.requests_before + answer.requests_after > 0.9 * 6 * SECONDS


def test_two_tenants_of_one_range_are_compared(engine: Engine) -> None:
    sides = [CompareSide(BEFORE, {"tenant": name}) for name in ("acme", "globex")]
    found = answer_compare(
        engine, CompareQuestion(sides[0], sides[1], "tpot"), replay=False
    ).decision
    assert found.compared_ratio > 0.9


def test_another_share_of_models_is_mix(tmp_path: Path) -> None:
    """The large model is slower, and gets more of the traffic. No server changed."""
    for engine in opened(tmp_path, store_two_models):
        found = answer_compare(
            engine,
            CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), "tpot", "p50"),
            replay=False,
        ).decision
    assert found.parts is not None
    assert found.parts.after_s > 1.5 * found.parts.before_s
    assert found.parts.mix_s == pytest.approx(found.parts.after_s - found.parts.before_s, rel=0.1)
    assert found.verdict is not CompareVerdict.WORSE


def test_a_model_that_has_another_name_after_a_change_is_compared(tmp_path: Path) -> None:
    for engine in opened(tmp_path, lambda url: store_two_models(url, quantised=True)):
        found = answer_compare(
            engine,
            CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), "tpot", "p50"),
            replay=False,
        ).decision
    assert found.compared_ratio > 0.9


def test_a_request_must_not_be_on_both_sides(engine: Engine) -> None:
    sides = [
        CompareSide(BEFORE, {"replica": "sim-0"}),
        CompareSide(BEFORE, {"model": "llama-3-8b-sim"}),
    ]
    with pytest.raises(CompareError, match="belong to both sides"):
        answer_compare(engine, CompareQuestion(sides[0], sides[1]))


@pytest.mark.parametrize(
    ("before", "after", "equals"),
    [(FAR, AFTER, {}), (BEFORE, FAR, {"replica": "sim-0"}), (FAR, FAR_LATER, {})],
)
def test_an_empty_range_is_undecided(
    engine: Engine, before: Window, after: Window, equals: dict[str, str | None]
) -> None:
    answer = answer_compare(
        engine, CompareQuestion(CompareSide(before, equals), CompareSide(after, equals))
    )
    assert answer.decision.verdict is CompareVerdict.UNDECIDED
    assert answer.decision.reasons
    assert answer.total.total_change_s is None
    assert answer.coefficients is None
    assert answer.restart is None
    assert finding(answer, text.seconds).startswith("Undecided: ")
    assert as_json(answer)["total_s"] is None


def test_a_range_of_one_request_is_undecided(engine: Engine) -> None:
    one = Window(BEFORE.from_unix_ns, BEFORE.from_unix_ns + 5 * 10**8)
    answer = answer_compare(engine, CompareQuestion(CompareSide(one), CompareSide(AFTER)))
    assert answer.decision.verdict is CompareVerdict.UNDECIDED
    assert as_json(answer)["compared_ratio"] == 0


def test_the_end_of_the_data_is_excluded(engine: Engine) -> None:
    """Among the last requests, only the fast ones have ended and are stored."""
    late = Window(AFTER.from_unix_ns, AFTER.to_unix_ns + 10**12)
    _, notes = read_sides(engine, CompareQuestion(CompareSide(BEFORE), CompareSide(late)))
    assert "have not ended yet" in notes[0]
    _, notes = read_sides(engine, CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER)))
    assert not notes


def test_the_end_of_the_data_is_excluded_on_both_sides_of_a_canary(engine: Engine) -> None:
    late = Window(AFTER.from_unix_ns, AFTER.to_unix_ns + 10**12)
    sides = [CompareSide(late, {"replica": name}) for name in ("sim-0", "sim-1")]
    found, notes = read_sides(engine, CompareQuestion(sides[0], sides[1], "e2e"))
    match = re.match(r"Requests of the last ([0-9.]+) s of the data are left out", notes[0])
    assert match is not None
    newest = newest_unix_ns(engine)
    assert newest is not None
    for each in found:
        last = each.requests.received_unix_ns[each.rows].max()
        assert last <= newest - (float(match[1]) - 0.1) * 1e9


def test_a_slower_server_leaves_out_more_of_the_end_of_the_data(tmp_path: Path) -> None:
    """At the end, only requests that are faster than most of their side are stored."""
    late = Window(AFTER.from_unix_ns, AFTER.to_unix_ns + 10**12)
    question = CompareQuestion(CompareSide(BEFORE), CompareSide(late))
    for engine in opened(tmp_path, lambda url: store(url, slower=2.0)):
        (before, after), notes = read_sides(engine, question)
        newest = newest_unix_ns(engine)
    match = re.match(r"Requests of the last ([0-9.]+) s of the data are left out", notes[0])
    assert match is not None
    before_s, after_s = (
        np.quantile((each.requests.ended_s - each.requests.instants.received_s)[each.rows], 0.99)
        for each in (before, after)
    )
    assert float(match[1]) == pytest.approx(after_s, rel=0.2)
    assert after_s > 1.5 * before_s
    assert newest is not None
    last = after.requests.received_unix_ns[after.rows].max()
    assert last <= newest - (float(match[1]) - 0.1) * 1e9


def test_a_reader_of_one_tenant_gets_no_comparison(engine: Engine) -> None:
    """A comparison needs the whole load, which contains the other tenants' requests."""
    grant = Grant(frozenset({"acme"}), None, costs=False)
    with pytest.raises(NotAllowed, match="all tenants"):
        read_sides(
            restricted(engine, Access.of([grant])),
            CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER)),
        )


@pytest.mark.parametrize(
    ("label", "before", "after"),
    [
        ("replica", "sim-0", "sim-1"),
        ("version", "0.31.0", "0.32.0"),
    ],
)
def test_a_slower_canary_is_worse(canary: Engine, label: str, before: str, after: str) -> None:
    sides = [CompareSide(BEFORE, {label: value}) for value in (before, after)]
    answer = answer_compare(canary, CompareQuestion(sides[0], sides[1], "tpot"))
    assert answer.decision.verdict is CompareVerdict.WORSE
    assert answer.decision.change_ratio == pytest.approx(0.5, abs=0.1)
    assert answer.total.total_change_s is not None
    assert answer.total.total_change_s > 0
    back = answer_compare(canary, CompareQuestion(sides[1], sides[0], "tpot"), replay=False)
    assert back.decision.verdict is CompareVerdict.BETTER


@pytest.mark.parametrize("label", ["config", "version"])
def test_a_restart_in_the_range_divides_the_steps_of_a_replica(tmp_path: Path, label: str) -> None:
    """The same replicas served both sides, before and after a restart."""
    start = simulated(START_S, 5, 1.0).starts[0]
    values = {"config": (start.config, "beef"), "version": (start.version, "0.32.0")}[label]
    whole = Window(BEFORE.from_unix_ns, AFTER.to_unix_ns)
    before, after = (CompareSide(whole, {label: value}) for value in values)
    for engine in opened(tmp_path, store_restarted):
        answer = answer_compare(engine, CompareQuestion(before, after, "tpot"))
        assert answer.decision.change_ratio == pytest.approx(0.2, abs=0.05)
        assert answer.coefficients is not None
        assert answer.coefficients.pace.value == pytest.approx(1.2, abs=0.02)
        # A model of the server before the change would be fitted to both configurations.
        assert answer.total.total_change_s is None
        assert f"restarted with another {label}" in (answer.total.reason or "")


def test_an_unknown_version_selects_nothing(canary: Engine) -> None:
    sides = [CompareSide(BEFORE, {"version": value}) for value in ("0.31.0", "9")]
    answer = answer_compare(canary, CompareQuestion(sides[0], sides[1], "tpot"), replay=False)
    assert answer.requests_before > 100
    assert answer.requests_after == 0
    assert answer.decision.verdict is CompareVerdict.UNDECIDED


def test_too_many_requests_are_refused_before_they_are_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.compare.answer.MAX_READ", 10)
    with pytest.raises(CompareError, match="allowed: at most 10"):
        answer_compare(engine, CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metric": "latency"}, "metric 'latency'; allowed: ttft, tpot"),
        ({"quantile": "p90"}, "quantile 'p90'; allowed: p50, p95, p99"),
        ({"margin": 0.0}, "margin 0; allowed: above 0"),
        ({"margin": float("nan")}, "margin nan; allowed: above 0"),
        ({"after": CompareSide(BEFORE)}, "overlap"),
        ({"after": CompareSide(Window(5, 5))}, "must end after it begins"),
        (
            {"after": CompareSide(AFTER, {"colour": "blue"})},
            "unknown label 'colour'; allowed: trace_id",
        ),
    ],
)
def test_a_wrong_question_lists_the_allowed_values(change: dict[str, object], reason: str) -> None:
    about: dict[str, object] = {
        "before": CompareSide(BEFORE),
        "after": CompareSide(AFTER),
        **change,
    }
    with pytest.raises(CompareError, match=reason):
        CompareQuestion(**about)  # type: ignore[arg-type]


def test_hostile_labels_select_nothing(engine: Engine) -> None:
    for value in ("'; DROP TABLE requests; --", "\x00\x1b[31m", "x" * 100_000):
        sides = [CompareSide(BEFORE, {"tenant": value}), CompareSide(AFTER, {"tenant": value})]
        answer = answer_compare(engine, CompareQuestion(sides[0], sides[1]), replay=False)
        assert answer.requests_before == answer.requests_after == 0


def test_a_joined_request_is_compared_once(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    store_rows(database, [row for number in range(60) for row in pair(number)], STATED)
    before = Window(JOINED_START_NS, JOINED_START_NS + 20 * 10**9)
    after = Window(before.to_unix_ns, before.to_unix_ns + 20 * 10**9)
    sides, notes = read_sides(database, CompareQuestion(CompareSide(before), CompareSide(after)))
    assert [side.rows.sum() for side in sides] == [20, 20]
    assert DECODE_ROWS in notes
    prefills = {"replica": "p"}
    of_one = CompareQuestion(CompareSide(before, prefills), CompareSide(after, prefills))
    sides, (note,) = read_sides(database, of_one)
    assert [side.rows.sum() for side in sides] == [20, 20]
    assert note.startswith("Engine rows")
    database.dispose()
