from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alerts.openslo.reader import OBJECTIVES, load
from analysis.compare import deploys
from analysis.compare.deploys import (
    Deploy,
    DeployAnswer,
    compare_deploy,
    latest_deploy,
    metrics_of_interest,
    missing,
)
from analysis.compare.sentences import short_finding
from analysis.compare.server_changes import ServerChange
from analysis.compare.verdict import CompareVerdict
from store.database import open_database
from store.writer import Writer
from telemetry.window import Window
from tests.analysis.compare.test_server_changes import start
from tests.analysis.compare.two_windows import AFTER, START_S, opened, store_deploy

SECOND_NS = 10**9
BOTH = ("ttft", "tpot")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a database with a deploy after which steps take 20 % longer."""
    yield from opened(tmp_path_factory.mktemp("deploys"), store_deploy)


@pytest.fixture(scope="module")
def deploy(engine: Engine) -> Deploy:
    found = latest_deploy(engine, Window(AFTER.from_unix_ns - SECOND_NS, AFTER.to_unix_ns))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def after(deploy: Deploy) -> Window:
    found = deploy.after(AFTER.to_unix_ns)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def answer(engine: Engine, deploy: Deploy, after: Window) -> DeployAnswer:
    return compare_deploy(engine, deploy, after, ("ttft", "tpot", "queue", "e2e"))


def test_a_slower_deploy_is_found_with_its_numbers_worst_latency_first(
    answer: DeployAnswer,
) -> None:
    verdicts = [each.decision.verdict for each in answer.found]
    order = (CompareVerdict.WORSE, CompareVerdict.UNDECIDED, CompareVerdict.NO_WORSE)
    assert verdicts[0] is CompareVerdict.WORSE
    assert verdicts == sorted(verdicts, key=order.index)
    worse = [
        each.decision.change_ratio for each in answer.found if each.decision.verdict is order[0]
    ]
    assert worse == sorted(worse, key=lambda each: -(each or 0.0))
    assert not missing(answer.found[0])
    (tpot,) = [each for each in answer.found if each.question.metric == "tpot"]
    assert tpot.decision.change_ratio == pytest.approx(0.2, abs=0.05)
    assert short_finding(tpot).startswith("TPOT P99 is ")
    assert "% worse [" in short_finding(tpot)


def test_a_single_latency_gives_the_same_decision_as_compare(
    engine: Engine, deploy: Deploy, after: Window, answer: DeployAnswer
) -> None:
    (alone,) = compare_deploy(engine, deploy, after, ["ttft"]).found
    assert alone in answer.found


def test_too_few_requests_say_how_many_are_missing(engine: Engine, deploy: Deploy) -> None:
    short = Window(deploy.change.to_unix_ns, deploy.change.to_unix_ns + 30 * SECOND_NS)
    (found,) = compare_deploy(engine, deploy, short, ["tpot"]).found
    assert found.decision.verdict is CompareVerdict.UNDECIDED
    assert missing(found) == 381 - found.requests_after > 0


def test_a_large_range_is_shortened_on_the_side_far_from_the_deploy(
    engine: Engine, deploy: Deploy, after: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploys, "MAX_REQUESTS", 500)
    answer = compare_deploy(engine, deploy, after, ["ttft"])
    assert answer.before.to_unix_ns == deploy.before.to_unix_ns
    assert answer.after.from_unix_ns == deploy.change.to_unix_ns
    assert answer.after.to_unix_ns < after.to_unix_ns


def test_the_range_after_a_deploy_grows_in_steps() -> None:
    change = ServerChange("The configuration", 10**12, 2 * 10**12)
    deploy = Deploy(change, Window(0, 10**12))
    lengths = {
        seconds: (after.to_unix_ns - after.from_unix_ns) // SECOND_NS
        for seconds in (0, 59, 60, 119, 120, 5_000, 10**6)
        if (after := deploy.after(2 * 10**12 + seconds * SECOND_NS)) is not None
    }
    assert lengths == {60: 60, 119: 60, 120: 120, 5_000: 3_600, 10**6: 3_600}


def test_the_range_before_a_deploy_is_an_hour_or_begins_after_an_earlier_deploy(
    tmp_path: Path,
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'starts.db'}")
    with Writer(engine) as writer:
        for at_s, config in ((0, "a"), (50_000, "b"), (60_000, "c"), (61_000, "d")):
            started = replace(start("r0", START_S, config), at_unix_ns=(START_S + at_s) * SECOND_NS)
            writer.submit([], [], starts=[started]).result(10)

    def before(from_s: int, to_s: int) -> tuple[int, int] | None:
        found = latest_deploy(engine, window(from_s, to_s))
        ends = None if found is None else (found.before.from_unix_ns, found.before.to_unix_ns)
        return None if ends is None else (seconds(ends[0]), seconds(ends[1]))

    def window(from_s: int, to_s: int) -> Window:
        return Window((START_S + from_s) * SECOND_NS, (START_S + to_s) * SECOND_NS)

    def seconds(at_unix_ns: int) -> int:
        return at_unix_ns // SECOND_NS - START_S

    assert before(59_000, 60_500) == (56_400, 60_000)
    assert before(60_500, 61_500) == (60_000, 61_000)
    assert before(40_000, 62_000) == (60_000, 61_000)
    assert before(52_000, 59_000) is None
    engine.dispose()


def test_the_objectives_select_the_latencies() -> None:
    objectives = load([OBJECTIVES]).objectives
    assert metrics_of_interest(objectives) == BOTH
    assert metrics_of_interest(()) == BOTH


def test_without_a_comparable_request_the_sentence_has_the_reason(
    engine: Engine, deploy: Deploy, after: Window
) -> None:
    nothing = replace(deploy, before=Window(0, 10**12))
    (found,) = compare_deploy(engine, nothing, after, ["ttft"]).found
    assert short_finding(found) == (
        "TTFT P99 is undecided, because 0 requests before; a P99 needs at least 381"
    )
