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
    labelled,
    later,
    quiet,
    shares,
    slower_where,
    started,
    told_each_second,
    well_cached,
    working,
)


def deployed(requests: Requests) -> Requests:
    """All that the window holds bears a new configuration."""
    return labelled(requests, "config", "c0", "c1")


def fewer_places(before: int, now: int, waiting_until_s: int = 900) -> Servers:
    """What both replicas were started with, and what with just before the window; a queue till
    then."""
    starts = [
        started(at_s, config, replica, scheduler__max_num_seqs=places)
        for at_s, config, places in ((0.0, "c0", before), (890.0, "c1", now))
        for replica in REPLICAS
    ]
    usual = {"running": 40, "waiting": lambda second: 9 * (900 <= second < waiting_until_s)}
    return servers_of(told_each_second({}, usual), None, starts)


def test_a_queue_since_a_deploy_of_fewer_places_is_the_deploys() -> None:
    """The argument is named with both its values, and the way back."""
    slower = deployed(later(quiet(), queue_seats_s=1.0))
    first = asked(slower, servers=fewer_places(256, 16)).causes[0]
    assert first.id == "config_change"
    assert first.share > 0.9
    assert first.where == {"config": "c1"}
    assert evidence(first, "scheduler.max_num_seqs") == (256, 16)
    assert "scheduler.max_num_seqs: 256 → 16" in first.levers[0].action


def test_replicas_of_new_names_are_held_against_those_they_replaced() -> None:
    """A deploy may rename them all: the argument is named nevertheless."""
    slower = deployed(slower_where(REPLICAS, 2.0))
    renamed = labelled(slower, "replica", "r0", "r9")
    told = fewer_places(256, 128)
    starts = [
        replace(start, replica="r9") if start.config == "c1" else start for start in told.starts
    ]
    first = asked(renamed, Metric.TPOT, replace(told, starts=starts)).causes[0]
    assert first.id == "config_change"
    assert evidence(first, "scheduler.max_num_seqs") == (256, 128)


def test_a_queue_with_the_configuration_of_old_is_no_deploys() -> None:
    """Nothing was changed."""
    assert "config_change" not in shares(
        asked(later(quiet(), queue_seats_s=1.0), servers=fewer_places(256, 256))
    )


def test_a_deploy_that_only_began_slowly_is_a_cold_start() -> None:
    """Past its first minutes all is as before."""
    slower = quiet(12_000)
    at_start = slower.received_unix_ns < 1_000 * S
    slower = deployed(later(slower, queue_seats_s=at_start * 20.0))
    servers = fewer_places(256, 128, waiting_until_s=1_000)
    found = shares(asked(slower, servers=servers, window=Span(900 * S, 1_200 * S)))
    assert next(iter(found)) == "cold_start"
    assert "config_change" not in found


def test_a_deploy_is_not_blamed_for_blocks_that_it_does_not_bear_on() -> None:
    """Fewer at a time need less memory: who waits for blocks waits for something else."""
    found = shares(asked(deployed(later(quiet(), queue_kv_s=1.0)), servers=fewer_places(256, 128)))
    assert next(iter(found)) == "kv_cache_exhausted"


def test_a_load_that_comes_with_a_deploy_has_its_own() -> None:
    """Four times the requests would have waited without it, too."""
    slower = deployed(later(busier(quiet(), 4), queue_seats_s=1.0))
    found = shares(asked(slower, servers=fewer_places(256, 128)))
    assert next(iter(found)) == "load_exceeds_capacity"


def test_a_deploy_that_makes_everything_a_little_slower_is_lasting() -> None:
    """The slowest move little where all requests take longer: their middle tells."""
    slower = deployed(later(quiet(), queue_step_s=lambda old: old + 0.02))
    found = asked(slower, Metric.TTFT, fewer_places(256, 128))
    assert found.causes[0].id == "config_change"


def test_who_starts_again_with_the_same_arguments_is_no_deploy() -> None:
    """One replica ends once more long after the deploy: its queue then is a cold start's."""
    requests = quiet(12_000)
    since_s = requests.received_unix_ns / S - 1_500
    waits = at_replica(requests, "r0") & (since_s > 0) & (since_s < 20)
    slower = deployed(later(requests, queue_seats_s=np.where(waits, 5.0, 1.0)))
    told = fewer_places(256, 16)
    again = replace(told.starts[-2], at_unix_ns=1_500 * S)
    assert (again.replica, again.config) == ("r0", "c1")
    found = shares(asked(slower, servers=replace(told, starts=[*told.starts, again])))
    assert next(iter(found)) == "config_change"
    assert found["cold_start"] > 0.2


def test_misses_beside_a_deploy_keep_their_places_in_a_smaller_batch() -> None:
    """Each request's own work is twice as long; that the batch is smaller does not excuse it."""
    missed = working(well_cached(quiet()), hits=0.0)
    slower = deployed(later(missed, queue_seats_s=3.0, decode_others_decode_s=0.0))
    found = shares(asked(slower, servers=fewer_places(256, 38)))
    assert set(found) == {"config_change", "prefix_cache_miss"}
