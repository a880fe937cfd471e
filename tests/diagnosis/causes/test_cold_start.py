from dataclasses import replace

import numpy as np
import pytest

from diagnosis.evidence.start_parts import LEVERS, WORDS, largest_part
from diagnosis.explanation import ExplanationVerdict
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric, Span
from telemetry.cold_starts import PARTS
from tests.cold_starts import cold_start
from tests.diagnosis.making import (
    ALPHA_S,
    S,
    asked,
    asking_for_adapters,
    at_replica,
    evidence,
    first_cause,
    flags,
    fleet,
    labels,
    later,
    quiet,
    shares,
    started,
    well_cached,
)

START_S = 1_500
FIVE_MINUTES = Span(1_440 * S, 1_740 * S)


def queued_at(begin_s: float) -> Requests:
    """Return requests; those at r0 wait for a slot for 100 s from `begin_s`."""
    requests = quiet(12_000)
    at_s = requests.received_unix_ns / S
    waits = at_replica(requests, "r0") & (at_s >= begin_s) & (at_s < begin_s + 100)
    return later(requests, queue_seats_s=np.where(waits, 20.0, 0.0))


def servers(*starts_s: float) -> Servers:
    engines = fleet({"waiting": 5, "running": 80}, {"waiting": 0, "running": 40})
    return replace(engines, starts=[started(0.0), *map(started, starts_s)])


def test_a_queue_after_a_start_is_the_starts() -> None:
    first = first_cause(
        asked(queued_at(START_S), servers=servers(START_S), window=FIVE_MINUTES), "cold_start", 0.9
    )
    assert first.where == {"replica": "r0"}
    assert evidence(first, "engine starts") == (0, 1)
    assert (evidence(first, "share of slow requests")[1] or 0) > 0.9
    assert "--load-format runai_streamer" in flags(first)


def test_a_queue_without_a_start_is_not_a_starts() -> None:
    found = asked(queued_at(START_S), servers=servers(), window=FIVE_MINUTES)
    assert found.verdict is ExplanationVerdict.INCIDENT
    assert "cold_start" not in shares(found)


def test_a_queue_long_after_a_start_is_not_attributed_to_it() -> None:
    found = asked(queued_at(1_600), servers=servers(1_450.0), window=FIVE_MINUTES)
    assert found.verdict is ExplanationVerdict.INCIDENT
    assert "cold_start" not in shares(found)


def test_a_stall_of_a_new_shape_is_attributed_to_the_start() -> None:
    """The queue is as short as usual, but the first batch of a new shape is slow."""
    requests = quiet(12_000)
    since_s = requests.received_unix_ns / S - START_S
    stalled = at_replica(requests, "r0") & (since_s >= 60) & (since_s < 90)
    slower = later(requests, decode_stall_s=np.where(stalled, 10.0, 0.0))
    quick = fleet({"waiting": 0, "running": 40}, {"waiting": 0, "running": 40})
    served = replace(quick, starts=[started(0.0), started(float(START_S))])
    first_cause(asked(slower, Metric.TPOT, served, window=FIVE_MINUTES), "cold_start", 0.9)
    first_cause(asked(slower, Metric.TPOT, quick, window=FIVE_MINUTES), "engine_stall", 0.9)


def test_only_the_start_that_delayed_requests_is_named() -> None:
    harmless = started(START_S + 150.0, replica="r1")
    usual = servers(START_S)
    both = replace(usual, starts=[*usual.starts, harmless])
    first = asked(queued_at(START_S), servers=both, window=FIVE_MINUTES).causes[0]
    assert (first.id, first.where) == ("cold_start", {"replica": "r0"})


def test_cache_misses_also_at_another_server_are_not_the_starts() -> None:
    """r0 starts with an empty cache. r1 has as many misses without a restart."""
    requests = well_cached(queued_at(START_S))
    own_s = 0.005 + ALPHA_S * requests.numbers["prompt_tokens"]
    missed = later(
        requests,
        cached_tokens=0.0,
        prefill_own_s=own_s,
        queue_budget_s=requests.numbers["queue_seats_s"],
        queue_seats_s=0.002,
    )
    found = shares(asked(missed, servers=servers(START_S), window=FIVE_MINUTES))
    assert found["cold_start"] == pytest.approx(0.5, abs=0.1)
    assert found["prefix_cache_miss"] == pytest.approx(0.5, abs=0.1)


def test_load_moved_to_another_server_is_attributed_to_the_start() -> None:
    """While r0 restarts, r1 gets all requests, so the router is not the cause."""
    requests = asking_for_adapters(3)
    since_s = requests.received_unix_ns / S - START_S
    away = (since_s > -25) & (since_s < 0)
    names = np.array(requests.label("replica").values)[requests.label("replica").codes]
    moved = labels(np.where(away, "r1", names).tolist())
    requests = replace(requests, labels={**requests.labels, "replica": moved})
    held = later(requests, queue_held_s=np.where(away, 8.0, 0.0))
    engines = fleet({"waiting_loras": 3}, {"waiting_loras": 0})
    starts = [started(0.0), started(float(START_S))]
    found = shares(asked(held, servers=replace(engines, starts=starts), window=FIVE_MINUTES))
    assert found["cold_start"] > 0.2
    assert "replica_imbalance" not in found


def test_the_largest_part_of_the_start_is_named_with_its_seconds_and_its_lever() -> None:
    known = servers(START_S)
    begun = cold_start(
        at_unix_ns=(START_S - 55) * S,
        replica="r0",
    )
    elsewhere = replace(begun, replica="r1", weights_s=1_000.0, length_s=1_036.0)
    with_parts = replace(known, cold_starts=[begun, elsewhere])
    first = first_cause(
        asked(queued_at(START_S), servers=with_parts, window=FIVE_MINUTES), "cold_start", 0.9
    )
    assert evidence(first, "seconds until the started server was ready") == (None, 56.0)
    assert evidence(first, "seconds of its largest part, the weights") == (None, 20.0)
    assert first.levers[0].flag == "--load-format runai_streamer"
    assert "the weights took 20 s of the start's 56 s" in first.levers[0].action


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_a_lever_and_a_name(part: str) -> None:
    assert LEVERS[part]
    assert WORDS[part]
    assert largest_part(cold_start(parts={part: 3.0})) == (part, 3.0)


def test_a_start_without_parts_has_the_general_levers() -> None:
    known = replace(
        servers(START_S),
        cold_starts=[cold_start(parts={}, at_unix_ns=START_S * S, replica="r0")],
    )
    first = asked(queued_at(START_S), servers=known, window=FIVE_MINUTES).causes[0]
    assert first.id == "cold_start"
    assert first.levers[0].flag is None
