from exporters.definitions.series_types import OTHER
from exporters.totals.label_limits import IDLE_NS, ExporterLabels, LabelCap
from exporters.totals.recent_requests import RecentIds


def test_values_beyond_the_cap_become_other() -> None:
    labels = ExporterLabels(limit=2)
    pairs = [labels.pair(f"model-{n}", "r1", 0) for n in (0, 1, 2, 0)]
    assert pairs == [("model-0", "r1"), ("model-1", "r1"), (OTHER, "r1"), ("model-0", "r1")]
    assert labels.overflows()["model"] == 1
    assert labels.pair(None, None, 0) == ("", "")


def test_a_replica_beyond_the_pairs_becomes_other_and_its_model_stays() -> None:
    """Two limited labels can still have many pairs. Sums by model stay right."""
    labels = ExporterLabels(combined_limit=2)
    pairs = [labels.pair(f"m{n}", "r0", 0) for n in range(3)]
    assert pairs == [("m0", "r0"), ("m1", "r0"), ("m2", OTHER)]
    assert labels.overflows()["model,replica"] == 1
    assert labels.partial_replicas() == ["r0"]


def test_a_model_beyond_the_pairs_becomes_other_and_its_tenant_stays() -> None:
    labels = ExporterLabels(combined_limit=2)
    pairs = [labels.tenant_pair(f"m{n}", "acme", 0) for n in range(3)]
    assert pairs == [("m0", "acme"), ("m1", "acme"), (OTHER, "acme")]
    assert labels.holds_tenant_pair((OTHER, "acme"))
    assert labels.partial_replicas() == []


def test_one_tenants_models_take_no_place_from_another_tenant() -> None:
    labels = ExporterLabels(combined_limit=4)
    for n in range(100):
        labels.tenant_pair(f"m{n}", "flood", 0)
    for n in range(2):
        assert labels.tenant_pair(f"m{n}", "acme", 0) == (f"m{n}", "acme")
    assert labels.tenant_pair("m2", "acme", 0) == (OTHER, "acme")
    for n in range(100):
        labels.tenant_pair(f"m{n}", "flood", 0)
    assert labels.tenant_pair("m0", "acme", 0) == ("m0", "acme")
    assert labels.tenant_pair("m1", "acme", 0) == ("m1", "acme")
    assert labels.use()["model,tenant"] == (4, 4)


def test_one_replicas_engines_and_gpus_take_no_place_from_another_replica() -> None:
    labels = ExporterLabels(combined_limit=4, gpu_limit=4)
    for n in range(100):
        labels.engine("flood", n, 0)
        labels.gpu("flood", f"g{n}", 0)
    assert labels.engine("r1", 0, 0)
    assert labels.gpu("r1", "g0", 0)
    assert labels.use()["gpu"] == labels.use()["engine"] == (4, 4)


def test_shared_tenants_take_places_and_keep_them() -> None:
    labels = ExporterLabels(limit=2)
    for tenant in ("a", "b", "c"):
        labels.tenant_pair("m", tenant, 0)
    labels.share_tenants(["c", "d"], 10)
    assert labels.tenants_since_unix_ns() == {"c": 10, "d": 10}
    later = 2 * IDLE_NS
    assert labels.tenant_pair("m", "e", later) == ("m", OTHER)
    assert labels.tenant_pair("m", "d", later) == ("m", "d")
    labels.share_tenants(["d"], later)
    assert labels.tenant_pair("m", "e", later) == ("m", "e")
    assert labels.tenants_since_unix_ns() == {"d": 10, "e": later}


def test_a_tenant_is_named_since_the_start_if_no_tenant_was_left_out() -> None:
    labels = ExporterLabels(limit=2)
    labels.tenant_pair("m", "a", 5)
    labels.share_tenants(["a", "b"], 10)
    assert labels.tenants_since_unix_ns() == {"a": 0, "b": 0}


def test_hostile_owners_leave_no_memory() -> None:
    labels = ExporterLabels(limit=10, combined_limit=10, gpu_limit=10)
    for n in range(2_000):
        now = n * IDLE_NS
        labels.pair(f"m{n}", f"r{n}", now)
        labels.tenant_pair(f"m{n}", f"t{n}", now)
        labels.engine(f"r{n}", n, now)
        labels.gpu(f"r{n}", f"g{n}", now)
    for cap in labels._caps.values():
        assert len(cap._seen_unix_ns) == len(cap._since_unix_ns) <= 10
        assert len(cap._owned) <= 10
        assert len(cap.partial) <= 10


def test_a_value_without_requests_loses_its_place() -> None:
    labels = ExporterLabels(combined_limit=1)
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
    labels = ExporterLabels(combined_limit=1)
    assert labels.engine("r1", 0, 0)
    assert not labels.engine("r1", 1, 0)
    assert labels.overflows()["engine"] == 1


def test_repeated_ids_are_found_within_the_memory() -> None:
    """The memory keeps at least `capacity` ids, and at most twice as many."""
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
