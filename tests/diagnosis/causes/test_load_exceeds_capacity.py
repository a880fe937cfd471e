import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    rolled_out,
    shares,
    working,
)


def full() -> Servers:
    now = {"running": 256, "waiting": 40}
    return fleet(now, {"running": 90, "waiting": 0}, scheduler__max_num_seqs=256)


def queued(requests: Requests) -> Requests:
    return later(requests, queue_seats_s=1.0)


def test_more_requests_than_there_are_places_for_are_a_load() -> None:
    load = first_cause(
        asked(queued(busier(quiet(), 2)), servers=full()), "load_exceeds_capacity", 0.9
    )
    before, now = evidence(load, "requests/s")
    assert now == pytest.approx(2 * (before or 0), rel=0.1)
    assert evidence(load, "requests waiting") == (0, 40)
    assert evidence(load, "requests running") == (90, 256)
    assert flags(load)["--max-num-seqs"] == "allow more sequences in the batch (256 → 512)"


def test_more_requests_after_a_rollout_are_a_load() -> None:
    """The window has no replica in common with the baseline."""
    load = first_cause(asked(rolled_out(queued(busier(quiet(), 3)))), "load_exceeds_capacity", 0.9)
    assert [each.change for each in load.levers if each.change] == ["replicas=3"]


def test_places_that_longer_answers_keep_are_no_load() -> None:
    """Longer outputs cause the queue; the number of requests is unchanged."""
    found = shares(asked(queued(working(quiet(), outputs=4.0)), servers=full()))
    assert found["longer_outputs"] > 0.9
    assert "load_exceeds_capacity" not in found


def test_more_requests_without_a_queue_are_no_incident() -> None:
    assert not asked(busier(quiet(), 2), servers=full()).causes
