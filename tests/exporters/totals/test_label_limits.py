from exporters.definitions.series_types import OTHER
from exporters.totals.label_limits import IDLE_NS, LabelCap, Labels
from exporters.totals.recent_requests import RecentIds


def test_values_beyond_the_cap_become_other() -> None:
    labels = Labels(limit=2)
    pairs = [labels.pair(f"model-{n}", "r1", 0) for n in (0, 1, 2, 0)]
    assert pairs == [("model-0", "r1"), ("model-1", "r1"), (OTHER, "r1"), ("model-0", "r1")]
    assert labels.overflows()["model"] == 1


def test_pairs_are_capped_too() -> None:
    """The product of two limited labels could still be large."""
    labels = Labels(combined_limit=2)
    pairs = [labels.pair("llama", f"r{n}", 0) for n in range(3)]
    assert pairs == [("llama", "r0"), ("llama", "r1"), (OTHER, OTHER)]
    assert labels.overflows()["model,replica"] == 1


def test_an_unknown_label_is_empty() -> None:
    assert Labels().pair(None, None, 0) == ("", "")


def test_a_value_without_requests_loses_its_place() -> None:
    labels = Labels(limit=1)
    old = labels.pair("llama", "r1", 0)
    assert labels.pair("llama", "r2", IDLE_NS - 1) == ("llama", OTHER)
    assert labels.holds_pair(old)
    assert labels.pair("llama", "r2", IDLE_NS) == ("llama", "r2")
    assert not labels.holds_pair(old)


def test_a_label_value_that_returns_keeps_its_place() -> None:
    cap: LabelCap[str] = LabelCap(2)
    for value, at in (("a", 0), ("b", 1), ("a", 2)):
        assert cap.admits(value, at)
    assert cap.admits("c", 1 + IDLE_NS)
    assert ("a" in cap, "b" in cap, "c" in cap) == (True, False, True)


def test_engines_beyond_the_limit_are_omitted() -> None:
    labels = Labels(combined_limit=1)
    assert labels.engine("r1", 0, 0)
    assert not labels.engine("r1", 1, 0)
    assert labels.overflows()["engine"] == 1


def test_repeated_ids_are_found_within_the_memory() -> None:
    """The memory contains between `capacity` and twice as many ids."""
    recent = RecentIds(capacity=3)
    ids = [f"{n:032x}" for n in range(8)]
    span = ["0" * 15 + "1"]
    assert all(recent.new_among([trace], span) for trace in ids)
    assert not any(recent.new_among([trace], span) for trace in ids[-3:])
    assert recent.new_among([ids[0]], span)
    assert len(recent._newer) + len(recent._older) <= 6


def test_an_id_that_appears_twice_in_a_batch_is_new_once() -> None:
    recent = RecentIds()
    recent.new_among(["a0"], ["01"])
    assert recent.new_among(["b0", "a0", "b0", "c0"], ["01"] * 4) == [0, 3]
