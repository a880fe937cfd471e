from dataclasses import replace

import numpy as np

from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric, Span
from tests.diagnosis.making import (
    REPLICAS,
    S,
    asked,
    at_replica,
    busier,
    evidence,
    first_cause,
    labelled,
    later,
    quiet,
    sampled_each_second,
    shares,
    slower_where,
    started,
    well_cached,
    working,
)


def deployed(requests: Requests) -> Requests:
    return labelled(requests, "config", "c0", "c1")


def fewer_places(before: int, now: int, waiting_until_s: int = 900) -> Servers:
    """Return two replicas. A deploy changes their number of batch slots from `before` to `now`, and
    requests then queue."""
    starts = [
        started(at_s, config, replica, scheduler__max_num_seqs=places)
        for at_s, config, places in ((0.0, "c0", before), (890.0, "c1", now))
        for replica in REPLICAS
    ]
    usual = {"running": 40, "waiting": lambda second: 9 * (900 <= second < waiting_until_s)}
    return servers_of(sampled_each_second({}, usual), None, starts)


def test_a_queue_since_a_deploy_of_fewer_places_is_the_deploys() -> None:
    slower = deployed(later(quiet(), queue_seats_s=1.0))
    first = first_cause(asked(slower, servers=fewer_places(256, 16)), "config_change", 0.9)
    assert first.where == {"config": "c1"}
    assert evidence(first, "scheduler.max_num_seqs") == (256, 16)
    assert "scheduler.max_num_seqs: 256 → 16" in first.levers[0].action


def test_replicas_of_new_names_are_held_against_those_they_replaced() -> None:
    slower = deployed(slower_where(REPLICAS, 2.0))
    renamed = labelled(slower, "replica", "r0", "r9")
    fewer = fewer_places(256, 128)
    starts = [
        replace(start, replica="r9") if start.config == "c1" else start for start in fewer.starts
    ]
    first = first_cause(asked(renamed, Metric.TPOT, replace(fewer, starts=starts)), "config_change")
    assert evidence(first, "scheduler.max_num_seqs") == (256, 128)


def test_a_queue_without_a_new_configuration_is_not_attributed_to_a_deploy() -> None:
    assert "config_change" not in shares(
        asked(later(quiet(), queue_seats_s=1.0), servers=fewer_places(256, 256))
    )


def test_a_deploy_that_only_began_slowly_is_a_cold_start() -> None:
    slower = quiet(12_000)
    at_start = slower.received_unix_ns < 1_000 * S
    slower = deployed(later(slower, queue_seats_s=at_start * 20.0))
    servers = fewer_places(256, 128, waiting_until_s=1_000)
    found = shares(asked(slower, servers=servers, window=Span(900 * S, 1_200 * S)))
    assert next(iter(found)) == "cold_start"
    assert "config_change" not in found


def test_a_smaller_batch_is_not_blamed_for_a_wait_for_blocks() -> None:
    found = shares(asked(deployed(later(quiet(), queue_kv_s=1.0)), servers=fewer_places(256, 128)))
    assert next(iter(found)) == "kv_cache_exhausted"


def test_a_load_increase_during_a_deploy_has_a_separate_share() -> None:
    slower = deployed(later(busier(quiet(), 4), queue_seats_s=1.0))
    found = shares(asked(slower, servers=fewer_places(256, 128)))
    assert next(iter(found)) == "load_exceeds_capacity"


def test_a_deploy_that_slows_all_requests_slightly_has_a_lasting_effect() -> None:
    """20 ms more per request are large for the median, but small for the slowest requests."""
    slower = deployed(later(quiet(), queue_step_s=lambda old: old + 0.02))
    found = asked(slower, Metric.TTFT, fewer_places(256, 128))
    assert found.causes[0].id == "config_change"


def test_a_restart_with_the_same_arguments_is_no_deploy() -> None:
    requests = quiet(12_000)
    since_s = requests.received_unix_ns / S - 1_500
    waits = at_replica(requests, "r0") & (since_s > 0) & (since_s < 20)
    slower = deployed(later(requests, queue_seats_s=np.where(waits, 5.0, 1.0)))
    fewer = fewer_places(256, 16)
    again = replace(fewer.starts[-2], at_unix_ns=1_500 * S)
    assert (again.replica, again.config) == ("r0", "c1")
    found = shares(asked(slower, servers=replace(fewer, starts=[*fewer.starts, again])))
    assert next(iter(found)) == "config_change"
    assert found["cold_start"] > 0.2


def test_cache_misses_with_a_smaller_batch_keep_their_share() -> None:
    missed = working(well_cached(quiet()), hits=0.0)
    slower = deployed(later(missed, queue_seats_s=3.0, decode_others_decode_s=0.0))
    found = shares(asked(slower, servers=fewer_places(256, 38)))
    assert set(found) == {"config_change", "prefix_cache_miss"}
