from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from analysis.compare.answer import answer_compare
from analysis.compare.as_json import as_json
from analysis.compare.processes import ReplicaProcess, processes_of
from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.verdict import CompareVerdict
from simulator.dataset import Dataset
from store.database import open_database
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart
from telemetry.window import Window
from tests.analysis.compare.test_server_changes import start
from tests.analysis.compare.two_windows import SECONDS, START_S, put, simulated

PACES = (1.07, 0.94, 1.06, 0.95, 1.04)
"""The factor of each process's step durations; all processes have the same configuration."""
APART_S = 600


def window(number: int) -> Window:
    begun_s = START_S + APART_S * number
    return Window(begun_s * 10**9, (begun_s + SECONDS) * 10**9)


def restarted(number: int, pace: float) -> Dataset:
    """Return the window of a process that began to load 600 s after the previous process."""
    data = simulated(START_S + APART_S * number, 50 + number, pace)
    starts = [replace(each, process=1_000 + number, loading_s=20.0) for each in data.starts]
    return replace(data, starts=starts)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a database with two replicas that were restarted four times."""
    url = f"sqlite:///{tmp_path_factory.mktemp('processes') / 'tailspan.db'}"
    put(url, [restarted(*each) for each in enumerate(PACES)])
    engine = open_database(url)
    yield engine
    engine.dispose()


def question(before: int, after: int) -> CompareQuestion:
    return CompareQuestion(
        CompareSide(window(before)), CompareSide(window(after)), "tpot", "p50", looks=False
    )


def test_a_restart_that_is_as_slow_as_others_is_not_worse(engine: Engine) -> None:
    answer = answer_compare(engine, question(3, 4), replay=False)
    assert answer.restart is not None
    # Each of two replicas was started four times before the change.
    assert answer.restart.freedom == 6
    assert answer.restart.difference == pytest.approx(1.0, abs=0.02)
    assert answer.restart.log_sd == pytest.approx(0.065, abs=0.03)
    assert answer.decision.change_ratio == pytest.approx(1.04 / 0.95 - 1, abs=0.02)
    assert answer.decision.verdict is CompareVerdict.UNDECIDED
    assert answer.notes[-1] == answer.restart.sentence
    found = as_json(answer)["restart"]
    assert found["processes"] == answer.restart.processes
    assert found["half_ratio"] > 0.1


def test_without_earlier_processes_the_effect_is_unknown(engine: Engine) -> None:
    answer = answer_compare(engine, question(0, 1), replay=False)
    assert answer.restart is not None
    assert answer.restart.log_sd is None
    assert "A restart alone may also change the latency" in answer.notes[-1]
    assert as_json(answer)["restart"] == {
        "processes": answer.restart.processes,
        "sd_ratio": None,
        "half_ratio": None,
    }


def test_the_same_processes_on_both_sides_have_no_effect(engine: Engine) -> None:
    whole = window(2)
    middle = (whole.from_unix_ns + whole.to_unix_ns) // 2
    sides = (
        CompareSide(Window(whole.from_unix_ns, middle)),
        CompareSide(Window(middle, whole.to_unix_ns)),
    )
    answer = answer_compare(engine, CompareQuestion(*sides, "tpot", "p50"), replay=False)
    assert answer.restart is None
    assert as_json(answer)["restart"] is None


def test_a_filter_also_selects_the_requests_of_earlier_processes(tmp_path: Path) -> None:
    """At the same work, requests of other tenants have a much longer TTFT."""
    windows = [restarted(*each) for each in enumerate(PACES)]
    url = f"sqlite:///{tmp_path / 'tailspan.db'}"
    put(url, [replace(each, requests=[*map(slow_unless_acme, each.requests)]) for each in windows])
    before, after = (CompareSide(window(number), {"tenant": "acme"}) for number in (3, 4))
    engine = open_database(url)
    answer = answer_compare(
        engine, CompareQuestion(before, after, "ttft", "p50", looks=False), replay=False
    )
    engine.dispose()
    assert answer.restart is not None
    assert answer.restart.freedom == 6
    assert answer.restart.log_sd is not None
    assert answer.restart.log_sd < 0.3


def slow_unless_acme(request: RequestTimeline) -> RequestTimeline:
    """Return a request with its E2E as its TTFT, unless it is from the tenant acme."""
    if request.tenant == "acme" or request.ttft_s is None:
        return request
    return replace(request, ttft_s=request.e2e_s)


def test_engines_that_load_together_are_one_process() -> None:
    first = [loading("r0", 100, engine=0), loading("r0", 103, engine=1)]
    again = [loading("r0", 200, engine=0), loading("r0", 190, engine=1)]
    found = processes_of([*again, *first, loading("r1", 150)], 300 * 10**9)
    assert found == [
        ReplicaProcess("r0", 100 * 10**9, 170 * 10**9, "a 0.32.0"),
        ReplicaProcess("r0", 190 * 10**9, 300 * 10**9, "a 0.32.0"),
        ReplicaProcess("r1", 150 * 10**9, 300 * 10**9, "a 0.32.0"),
    ]
    assert processes_of([], 300 * 10**9) == []


def loading(replica: str, at_s: int, engine: int = 0) -> EngineStart:
    return replace(start(replica, at_s), engine=engine, loading_s=20.0)
