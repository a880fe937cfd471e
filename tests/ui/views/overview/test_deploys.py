import html
import re
import time
from collections.abc import Sequence
from datetime import UTC
from typing import Any
from urllib.parse import parse_qsl

import pytest

from analysis.compare.answer import DecisionResult
from analysis.compare.decision import CompareDecision
from analysis.compare.deploys import Deploy, DeployAnswer
from analysis.compare.intervals import Interval
from analysis.compare.parts import PercentileParts
from analysis.compare.process_effect import ProcessEffect
from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.server_changes import ServerChange
from analysis.compare.verdict import CompareVerdict
from telemetry.window import Window
from tests.analysis.compare.test_server_changes import start
from tests.analysis.compare.two_windows import SECONDS, START_S, store_deploy
from tests.ui.conftest import fill
from tests.ui.opening import HOSTILE, Database, Open, markup
from ui.frame.view import View
from ui.views.overview.deploys import RESTART, sentence

SECOND_NS = 10**9
AT_S = 14 * 3_600 + 120
BEFORE = Window((AT_S - 3_600) * SECOND_NS, AT_S * SECOND_NS)
AFTER = Window(AT_S * SECOND_NS, (AT_S + 960) * SECOND_NS)
DEPLOY = Deploy(ServerChange("The configuration", AT_S * SECOND_NS, AT_S * SECOND_NS), BEFORE)
RANGE = {"from": str(START_S + 300), "to": str(START_S + 600 + SECONDS)}


def decided(
    metric: str,
    verdict: CompareVerdict,
    change: float,
    reasons: Sequence[str] = (),
    after: int = 800,
    restart: ProcessEffect | None = None,
) -> DecisionResult:
    found = CompareDecision(
        verdict,
        *(1.0, 1.0 + change),
        PercentileParts(1.0, 1.0 + change, 1.0 + change, 1.0, 1.0),
        Interval(change - 0.06, change + 0.07),
        *(1.0, 800.0),
        reasons=reasons,
    )
    return DecisionResult(
        CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), metric, "p99"),
        found,
        3_000,
        after,
        restart,
    )


def deploy_sentence(*found: DecisionResult, view: View | None = None) -> str:
    answer = DeployAnswer(DEPLOY, BEFORE, AFTER, found)
    return sentence(DEPLOY, answer, view or View(), AFTER, UTC)


WORSE = decided("tpot", CompareVerdict.WORSE, 0.18)
SAME = decided("ttft", CompareVerdict.NO_WORSE, -0.03)


def test_the_sentence_has_the_numbers_and_the_worst_latency_first() -> None:
    text = deploy_sentence(WORSE, SAME, decided("e2e", CompareVerdict.BETTER, -0.2))
    assert text.startswith(
        "Since the deploy at 14:02 (configuration), TPOT P99 is 18 % worse [12, 25] at the same mix"
        " and load. TTFT P99 is no worse within 5 % [-9.0, +4.0] at the same mix and load."
    )
    assert "E2E" not in text


def test_an_unknown_effect_of_the_restart_is_a_warning() -> None:
    unknown, known = (ProcessEffect(2, freedom, sd, 1.4) for freedom, sd in ((0, None), (3, 0.02)))
    for restart in (unknown, known, None):
        text = deploy_sentence(decided("tpot", CompareVerdict.WORSE, 0.18, restart=restart))
        assert (RESTART in text) == (restart is unknown)


def test_the_link_opens_both_ranges_without_filters() -> None:
    (link,) = re.findall(
        r"href='(compare[^']+)'", deploy_sentence(WORSE, view=View(equals={"tenant": "a"}))
    )
    asked = dict(parse_qsl(html.unescape(link).partition("?")[2]))
    assert asked == {
        "baseline": f"{AT_S - 3_600}/{AT_S}",
        "from": str(AT_S),
        "to": str(AT_S + 960),
        "latency": "tpot",
        "quantile": "p99",
    }


def test_a_deploy_of_an_earlier_day_has_its_date() -> None:
    later = Window(BEFORE.from_unix_ns, AFTER.to_unix_ns + 86_400 * SECOND_NS)
    assert sentence(DEPLOY, None, View(), later, UTC).startswith(
        "The configuration changed at 1970-01-01 14:02."
    )


def test_with_filters_the_sentence_states_that_it_is_about_all_requests() -> None:
    assert deploy_sentence(WORSE, view=View(equals={"tenant": "a"})).startswith(
        "<b>All requests:</b> Since"
    )


def test_an_undecided_comparison_has_its_reason() -> None:
    text = deploy_sentence(decided("ttft", CompareVerdict.UNDECIDED, 0.03))
    assert "the change of TTFT P99 is undecided: +3.0 % [-3.0, +10.0]" in text
    assert "the margin is 5 %" in text


def test_too_few_requests_say_how_many_are_missing() -> None:
    few = decided("ttft", CompareVerdict.UNDECIDED, 0.03, after=37)
    fewer = decided("tpot", CompareVerdict.UNDECIDED, 0.03, after=36)
    text = deploy_sentence(few, fewer)
    assert "36 requests with a known TPOT arrived; 345 more are needed to compare TPOT P99" in text
    assert "(at least 381)" in text
    assert "TTFT" not in text


def test_before_the_first_answer_the_sentence_has_no_numbers() -> None:
    text = sentence(DEPLOY, None, View(), AFTER, UTC)
    assert text.startswith("The configuration changed at 14:02. <a href='compare?")
    soon = Window(BEFORE.from_unix_ns, AFTER.from_unix_ns + 59 * SECOND_NS)
    assert sentence(DEPLOY, None, View(), soon, UTC) == "The configuration changed at 14:02."
    assert "No comparison: &lt;b&gt;." in sentence(DEPLOY, "<b>", View(), AFTER, UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with a deploy, after which steps take 20 % longer."""
    found = f"sqlite:///{tmp_path_factory.mktemp('deploys') / 'tailspan.db'}"
    store_deploy(found)
    return found


def test_the_page_shows_what_a_deploy_did(page: Open, url: str) -> None:
    text = markup(page(url, **RANGE))
    assert "(configuration), TTFT P99 is" in text or "(configuration), TPOT P99 is" in text
    assert "% worse [" in text
    (link,) = re.findall(r"href='(compare[^']+)'", text)
    asked = dict(parse_qsl(html.unescape(link).partition("?")[2]))
    assert asked["to"] == str(START_S + 600 + 120)


def test_a_live_page_does_not_wait_for_the_numbers(
    page: Open, database: Database, fleet: Any
) -> None:
    """The page first has a sentence without numbers, and a later refresh adds the numbers."""
    now_s = int(time.time())
    url = database(*fleet(2_000, (now_s - 600) * SECOND_NS, 600))
    fill(url, [], [], [start("r1", now_s - 5_000), start("r1", now_s - 300, "beef")])
    test = page(url, last="15m")
    first = markup(test)
    assert "The configuration changed at" in first
    deadline = time.monotonic() + 60
    while "Since the deploy at" not in markup(test.run()):
        assert time.monotonic() < deadline
        time.sleep(1)  # each refresh delays the computation


def test_without_a_deploy_there_is_no_sentence(page: Open, url: str) -> None:
    text = markup(page(url, **{"from": str(START_S), "to": str(START_S + 500)}))
    assert "requests" in text
    assert "changed at" not in text
    assert "Since the deploy" not in text


def test_a_hostile_filter_is_text(page: Open, url: str) -> None:
    text = markup(page(url, **RANGE, tenant=HOSTILE))
    assert "<script>" not in text
    assert "<b>All requests:</b> Since the deploy" in text
