from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    asking_for_adapters,
    evidence,
    flags,
    later,
    quiet,
    shares,
    started,
    told_each_second,
)


def loading(now: float) -> Servers:
    """So many adapters are waited for; there are four places."""
    usual = {"waiting_loras": 0.0, "deferred": 0}
    engines = told_each_second(
        {each: {"waiting_loras": now, "deferred": 6} for each in REPLICAS}, usual
    )
    starts = [started(replica=each, lora__max_loras=4) for each in REPLICAS]
    return servers_of(engines, None, starts)


def test_more_adapters_than_places_are_swapped() -> None:
    """Ten times as many kinds are asked for; the places can be doubled."""
    first = asked(asking_for_adapters(30), servers=loading(3.0)).causes[0]
    assert first.id == "lora_swap"
    assert first.share > 0.9
    assert evidence(first, "adapters that requests wait for") == (0, 3)
    assert evidence(first, "requests deferred") == (0, 6)
    assert flags(first)["--max-loras"].endswith("(4 → 8)")
    assert "--max-cpu-loras" in flags(first)


def test_requests_without_an_adapter_wait_for_none() -> None:
    """They are held back, and it is not known by what."""
    found = asked(later(quiet(), queue_held_s=1.0), servers=loading(3.0))
    assert "lora_swap" not in shares(found)


def test_places_for_adapters_that_longer_answers_keep_are_theirs() -> None:
    """As few kinds as ever, each in use for eight times as long."""
    found = shares(asked(asking_for_adapters(3, 8.0), servers=loading(3.0)))
    assert next(iter(found)) == "longer_outputs"
