from dataclasses import replace
from datetime import UTC
from typing import Any

import numpy as np
import pytest

from analysis.over_time.time_bins import Bins
from diagnosis.inputs.requests import LabelColumn
from diagnosis.inputs.servers import EngineName
from telemetry.incidents import IncidentRow
from ui.kit import data_sources
from ui.views.fleet import table, words
from ui.views.fleet.replicas import (
    FleetReplicas,
    ReplicaFacts,
    ReplicaTraffic,
    fleet,
    imbalance_of,
    traffic_of,
)

BINS = Bins(0, 10**9, 4)


def made(
    over_time: dict[str, list[list[float]]] | None = None,
    whole: dict[str, list[float]] | None = None,
    **facts: ReplicaFacts,
) -> FleetReplicas:
    return fleet(
        ("a", "b", "c"),
        BINS,
        {name: np.array(values) for name, values in (over_time or {}).items()},
        {name: np.array(values)[:, None] for name, values in (whole or {}).items()},
        {
            name: ReplicaTraffic(10, p99, None, None)
            for name, p99 in (("a", 0.1), ("b", 0.3), ("c", 0.2))
        },
        None,
        facts,
    )


def problems(found: FleetReplicas) -> dict[str, list[str]]:
    return {each.name: [problem.what for problem in each.problems] for each in found.replicas}


def test_without_problems_replicas_are_sorted_by_tail() -> None:
    found = made({"queue": [[0, 0, 0, 1]] * 3}, {"kv": [0.5] * 3, "preemptions": [0.0] * 3})
    assert [each.name for each in found.replicas] == ["b", "c", "a"]
    assert words.sentence(found) == "<b>3 replicas</b>, no problem found."


def test_without_a_problem_an_incident_is_linked() -> None:
    row = IncidentRow("chat", "page", 100, 40, 200, None, 100, "20", None)
    text = words.sentence(made(), row)
    assert text.startswith(
        "<b>3 replicas</b>: no replica has a problem of its own, but incident <b>chat</b>"
        " overlaps this range. <a href='root-cause?incident=chat%40100'"
    )
    troubled = words.sentence(made(c=ReplicaFacts(silent_s=90.0)), row)
    assert "with problems: <b class='name'>c</b> (silent)" in troubled
    hostile = words.sentence(made(), replace(row, slo="<script>'"))
    assert "<script" not in hostile
    assert hostile.count("'") == 4, "the quotes of the link"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"c": ReplicaFacts(silent_s=90.0)}, "silent"),
        ({"c": ReplicaFacts(held_back=0.5, reasons=("hw_slowdown",))}, "clock throttled"),
        ({"c": ReplicaFacts(restarts=(5,))}, "restarted"),
        ({"c": ReplicaFacts(differing_arguments=("x 1, not 2",))}, "other arguments"),
        ({"whole": {"kv": [0.1, 0.2, 0.97]}}, "KV cache full"),
        ({"whole": {"preemptions": [0, 0, 0.2]}}, "preempts"),
        ({"whole": {"stall": [0, 0, 0.06]}}, "stalls"),
        ({"whole": {"waited": [0.4, np.nan, 0.5]}}, "queue"),
    ],
)
def test_problems_are_named_and_come_first(given: dict[str, Any], what: str) -> None:
    found = made(**given)
    assert problems(found) == {"c": [what], "b": [], "a": []}
    assert found.replicas[0].name == "c"
    assert found.replicas[0].problems[0].why
    assert f"1 of them with problems: <b class='name'>c</b> ({what})" in words.sentence(found)


def test_a_queue_of_now_is_a_trouble_after_a_long_calm() -> None:
    lately = [[0.0] * 9 + [0.1, 0.9, 1.0], [0.0] * 12, [1.0] * 2 + [0.0] * 10]
    found = made({"waited": lately}, {"waited": [0.17, 0.0, 0.17]})
    assert problems(found) == {"a": ["queue"], "b": [], "c": []}
    assert "95 % of the latest samples" in found.replicas[0].problems[0].why


def test_unknown_values_are_no_problem() -> None:
    unknown = {name: [np.nan] * 3 for name in ("kv", "preemptions", "stall", "waited")}
    assert problems(made({"queue": [[np.nan] * 4] * 3}, unknown)) == {"a": [], "b": [], "c": []}


def requests(slow_on_b: float, number: int = 3_000) -> tuple[LabelColumn, np.ndarray]:
    """Return requests of two replicas; on b, a share of them takes ten times as long."""
    draw = np.random.default_rng(5)
    codes = (np.arange(number) % 2).astype(np.int32)
    ttft_s = draw.lognormal(-2.0, 0.3, number)
    ttft_s[(codes == 1) & (draw.random(number) < slow_on_b)] *= 10.0
    return LabelColumn(codes, ("a", "b")), ttft_s


def test_a_replica_that_is_slow_more_often_is_named_with_its_interval() -> None:
    found = imbalance_of(*requests(0.1))
    assert found is not None
    (hit,) = found.hits
    assert hit.value == "b"
    assert hit.low > 2.0
    text = words.imbalance(found, 2)
    assert text is not None
    assert text.startswith("Latency is uneven: a request on <b>b</b> is ")
    assert f"[{hit.low:.1f} to {hit.high:.1f}]" in text
    assert "Load is even." in text


def test_an_engine_that_is_slow_more_often_is_a_problem_of_its_replica() -> None:
    labels, ttft_s = requests(0.1)
    engines = {f"a engine {each}": EngineName("a", each) for each in (0, 1)}
    found = imbalance_of(LabelColumn(labels.codes, tuple(engines)), ttft_s)
    assert found is not None
    (hit,) = found.hits
    whole = fleet(("a",), BINS, {}, {}, {}, found, {}, engines)
    assert whole.servers == 2
    assert [each.what for each in whole.replicas[0].problems] == [
        f"engine 1 slow {hit.risk_ratio:.1f}×"
    ]
    text = str(words.imbalance(found, whole.servers, "engine"))
    assert "a request on <b>a engine 1</b> is" in text
    assert "as a request on another engine" in text


def test_an_even_load_is_reported() -> None:
    found = imbalance_of(*requests(0.0))
    assert found is not None
    assert found.hits == []
    assert str(words.imbalance(found, 2)).startswith("Latency is even: no replica’s requests")


def test_a_slightly_higher_share_of_slow_requests_is_not_reported() -> None:
    """With 100,000 requests, a ratio of 1.1 is significant, but too small to report."""
    found = imbalance_of(*requests(0.006, 100_000))
    assert found is not None
    assert found.hits == []


def test_a_slightly_slower_tail_is_not_reported() -> None:
    """One replica has 1.8 times as many slow requests, but the P99 of both is about equal."""
    draw = np.random.default_rng(5)
    codes = (np.arange(6_000) % 2).astype(np.int32)
    ttft_s = draw.lognormal(-2.0, 0.3, 6_000)
    slow = draw.random(6_000) < np.where(codes == 1, 0.07, 0.04)
    ttft_s[slow] = 2.4 * draw.lognormal(0.0, 0.05, int(slow.sum()))
    found = imbalance_of(LabelColumn(codes, ("a", "b")), ttft_s)
    assert found is not None
    assert found.hits == []


def test_too_few_requests_are_no_evenness() -> None:
    labels, ttft_s = requests(0.0, 200)
    assert imbalance_of(labels, ttft_s) is None
    assert "Too few requests" in str(words.imbalance(None, 2))
    assert words.imbalance(None, 1) is None


def test_if_one_replica_gets_all_requests_there_are_not_too_few() -> None:
    alone = LabelColumn(np.zeros(3_000, dtype=np.int32), ("a",))
    found = imbalance_of(alone, np.ones(3_000))
    assert found is not None
    assert found.hits == ()
    assert "served by one replica" in str(words.imbalance(found, 2))
    assert words.imbalance(found, 1) is None


def test_an_unequal_load_is_reported() -> None:
    codes = np.where(np.arange(4_000) % 10 == 0, 0, 1).astype(np.int32)
    found = imbalance_of(LabelColumn(codes, ("a", "b")), np.random.default_rng(1).random(4_000))
    assert "The busiest replica gets 90 % of the requests, the least busy 10 %." in str(
        words.imbalance(found, 2)
    )


def test_requests_that_are_not_streamed_count_as_load() -> None:
    """They have no TTFT, and one of the replicas receives nearly all of them."""
    labels, ttft_s = requests(0.0)
    whole = np.full(4_000, np.nan)
    codes = np.concatenate([labels.codes, np.zeros(4_000, dtype=np.int32)])
    found = imbalance_of(LabelColumn(codes, ("a", "b")), np.concatenate([ttft_s, whole]))
    assert found is not None
    assert found.requests == 3_000
    assert "The busiest replica gets 79 % of the requests, the least busy 21 %." in str(
        words.imbalance(found, 2)
    )


@pytest.mark.parametrize(("servers", "text"), [(3, "1 replica gets none"), (5, "3 replicas get")])
def test_a_replica_without_requests_is_no_even_load(servers: int, text: str) -> None:
    found = imbalance_of(*requests(0.0))
    assert "Load is even" not in str(words.imbalance(found, servers))
    assert f"The busiest replica gets 50 % of the requests, and {text}" in str(
        words.imbalance(found, servers)
    )
    assert "Load is even" in str(words.imbalance(found, servers, scraped=servers - 2))


def test_the_tail_of_each_replica_has_an_interval_if_possible() -> None:
    codes = np.array([0] * 500 + [1] * 5 + [2] * 3, dtype=np.int32)
    ttft_s = np.concatenate([np.linspace(0.1, 1.0, 500), np.full(5, 0.2), np.full(3, np.nan)])
    ttft_s[0] = np.nan  # not streamed
    found = traffic_of(LabelColumn(codes, ("a", "b", "c", "d")), ttft_s)
    assert found["a"].requests == 499
    assert found["a"].low_s is not None
    assert found["a"].low_s < (found["a"].p99_s or 0) < (found["a"].high_s or 0)
    assert found["b"] == ReplicaTraffic(5, 0.2, None, None)
    assert found["c"] == ReplicaTraffic(0, None, None, None)
    assert "d" not in found


def test_the_unread_share_is_noted() -> None:
    assert data_sources.thinned_samples(None) is words.thinned_requests(1) is None
    assert "Only 16 s of every 5 min 52 s were read" in str(data_sources.thinned_samples(352))
    assert "1 in 4 requests" in str(words.thinned_requests(4))
    assert words.ignored_filters([]) is None
    assert "filter by tenant or route applies only to TTFT" in str(
        words.ignored_filters(["tenant", "route"])
    )


def test_a_start_on_another_day_has_its_date() -> None:
    now_ns = BINS.first_unix_ns + 86_400 * 10**9
    found = made(a=ReplicaFacts(began_unix_ns=now_ns), b=ReplicaFacts(began_unix_ns=2 * 10**9))
    cells = {each["name"]["text"]: each["since"] for each in table.rows(found, lambda _: "", UTC)}
    assert cells["a"]["text"] == "1970-01-02"
    assert cells["b"]["text"] == "00:00:02"
    assert cells["b"]["title"] == "since 1970-01-01 00:00:02"
