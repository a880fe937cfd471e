import pytest

from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    busier,
    evidence,
    flags,
    later,
    quiet,
    shares,
    started,
    told_each_second,
    working,
)


def full() -> Servers:
    """All places are taken, and others wait for one."""
    now = {each: {"running": 256, "waiting": 40} for each in REPLICAS}
    engines = told_each_second(now, {"running": 90, "waiting": 0})
    starts = [started(replica=each, scheduler__max_num_seqs=256) for each in REPLICAS]
    return servers_of(engines, None, starts)


def queued(requests: Requests) -> Requests:
    """Everybody waits for a place."""
    return later(requests, queue_seats_s=1.0)


def test_more_requests_than_there_are_places_for_are_a_load() -> None:
    """Twice the rate, and the number of places at hand to be raised."""
    load = asked(queued(busier(quiet(), 2)), servers=full()).causes[0]
    assert load.id == "load_exceeds_capacity"
    assert load.share > 0.9
    before, now = evidence(load, "requests/s")
    assert now == pytest.approx(2 * (before or 0), rel=0.1)
    assert evidence(load, "requests waiting") == (0, 40)
    assert evidence(load, "requests running") == (90, 256)
    assert flags(load)["--max-num-seqs"] == "allow more sequences in the batch (256 → 512)"


def test_places_that_longer_answers_keep_are_no_load() -> None:
    """As many requests as ever: who stays four times as long is to blame for the queue."""
    found = shares(asked(queued(working(quiet(), outputs=4.0)), servers=full()))
    assert found["longer_outputs"] > 0.9
    assert "load_exceeds_capacity" not in found


def test_more_requests_that_nobody_waits_for_are_no_incident() -> None:
    """A busy hour is no cause of anything."""
    assert not asked(busier(quiet(), 2), servers=full()).causes
