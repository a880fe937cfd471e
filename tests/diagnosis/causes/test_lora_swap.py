from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    asked,
    asking_for_adapters,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
)


def loading(now: float) -> Servers:
    """Return samples of an engine with four adapter slots. In the window, requests wait for a slot
    for `now` adapters."""
    usual = {"waiting_loras": 0.0, "deferred": 0}
    return fleet({"waiting_loras": now, "deferred": 6}, usual, lora__max_loras=4)


def test_more_adapters_than_places_are_swapped() -> None:
    first = first_cause(asked(asking_for_adapters(30), servers=loading(3.0)), "lora_swap", 0.9)
    assert evidence(first, "adapters that requests wait for") == (0, 3)
    assert evidence(first, "requests deferred") == (0, 6)
    assert flags(first)["--max-loras"].endswith("(4 → 8)")
    assert "--max-cpu-loras" in flags(first)


def test_requests_without_an_adapter_do_not_wait_for_adapters() -> None:
    """The requests are held back for an unknown reason."""
    found = asked(later(quiet(), queue_held_s=1.0), servers=loading(3.0))
    assert "lora_swap" not in shares(found)


def test_adapter_slots_held_by_longer_outputs_are_attributed_to_them() -> None:
    found = shares(asked(asking_for_adapters(3, 8.0), servers=loading(3.0)))
    assert next(iter(found)) == "longer_outputs"
