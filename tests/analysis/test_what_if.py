from dataclasses import replace
from functools import cache
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput, Objective
from alerts.openslo.reader import OBJECTIVES, load
from analysis.advice import advise
from analysis.recorded_traffic import (
    LEAD_S,
    REQUEST_COLUMNS,
    NotReplayableError,
    Recorded,
    engine_config,
    read_recorded,
    recorded_of,
)
from analysis.what_if import WhatIfAnswer, WhatIfQuestion, predict
from analysis.window_replay import METRICS, blocks_of, replayed, resampled, traffic_of
from replay.edits import EditError, Edits, RateEdit, edits_of
from replay.engine_config import EngineConfig
from simulator.dataset import Dataset, run
from simulator.fault import SimulatedFault
from simulator.workload import Workload
from store.database import open_database
from telemetry.starts import read, written
from telemetry.window import Window
from tests.analysis.recorded_fleet import recorded_window, simulated_window
from tests.store.conftest import put

SECONDS = 150
ENGINE = EngineConfig(max_num_seqs=64)


@cache
def simulated(
    engine: EngineConfig = ENGINE, replicas: int = 1, rate_per_s: float = 4.0
) -> tuple[Dataset, Window]:
    workload = Workload(rate_per_s=rate_per_s)
    return simulated_window(SECONDS, seed=11, replicas=replicas, engine=engine, workload=workload)


@cache
def recorded(replicas: int = 1) -> Recorded:
    return recorded_window(*simulated(replicas=replicas, rate_per_s=4.0 * replicas))


def answer(edits: Edits, replicas: int = 1, draws: int = 0) -> WhatIfAnswer:
    window = recorded(replicas).window
    return predict(recorded(replicas), WhatIfQuestion(window, edits), draws)


def within(good: str) -> Objective:
    """Return an objective about all requests."""
    objective = load([OBJECTIVES]).objectives[0]
    return replace(objective, indicator=Goodput(None, parse(good, GOOD)))


def truth(name: str, engine: EngineConfig) -> np.ndarray:
    data, window = simulated(engine)
    table = data.request_table()
    table = table.filter(pc.greater_equal(table["received_unix_ns"], window.from_unix_ns))
    return np.asarray(table[name].drop_null())


def test_the_unchanged_window_is_reproduced_and_intervals_contain_the_value() -> None:
    found = answer(Edits(output=1.2), draws=3)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert found.reproduced[name]["p50"].error_ratio == pytest.approx(0, abs=0.05)
        assert found.reproduced[name]["p99"].error_ratio == pytest.approx(0, abs=0.15)
    known = [
        each
        for name in METRICS
        for each in found.predicted[name].values()
        if each.value is not None and each.low is not None and each.high is not None
    ]
    assert len(known) > 10
    assert all(each.low <= each.value <= each.high for each in known)  # type: ignore[operator]


def test_a_window_with_speculation_is_reproduced() -> None:
    traffic = recorded_window(*simulated(replace(ENGINE, num_speculative_tokens=4)))
    found = predict(traffic, WhatIfQuestion(traffic.window, Edits(prompt=1.01)), 0).reproduced
    for name in ("tpot_s", "e2e_s"):
        for point in ("p50", "p95"):
            assert found[name][point].error_ratio == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "engine"),
    [
        ({"max_num_batched_tokens": "1024"}, replace(ENGINE, max_num_batched_tokens=1024)),
        ({"enable_prefix_caching": "false"}, replace(ENGINE, enable_prefix_caching=False)),
    ],
)
def test_a_change_is_predicted_as_the_changed_fleet_measures_it(
    arguments: dict[str, str], engine: EngineConfig
) -> None:
    found = answer(Edits(arguments=arguments))
    assert not found.saturated
    for name in ("ttft_s", "tpot_s", "itl_max_s", "e2e_s"):
        measured = truth(name, engine)
        assert found.predicted[name]["p50"].value == pytest.approx(
            np.quantile(measured, 0.5), rel=0.06
        )
        assert found.predicted[name]["p99"].value == pytest.approx(
            np.quantile(measured, 0.99), rel=0.15
        )


def test_too_few_batch_slots_are_reported_as_saturated() -> None:
    found = answer(Edits(arguments={"max_num_seqs": "4"}))
    assert found.saturated
    assert found.binds == "seats"
    assert found.binds_now == "none"


def test_a_full_queue_is_reported_as_saturated() -> None:
    """When the queue is full, requests are rejected, so the queueing time stops growing."""
    whole = recorded()
    (one,) = whole.engines
    engine = replace(one.model.engine, max_num_queued_reqs=40)
    few = replace(whole, engines=[replace(one, model=replace(one.model, engine=engine))])
    question = WhatIfQuestion(whole.window, Edits(arguments={"max_num_seqs": "4"}))
    found = predict(few, question, 0)
    assert found.rejected > 0.02 * found.requests
    assert found.saturated


def test_a_request_that_a_full_queue_rejects_is_bad() -> None:
    """A request that is too long is the client's error and does not count."""
    whole = recorded()
    (one,) = whole.engines
    engine = replace(one.model.engine, max_num_queued_reqs=1)
    small = replace(whole, engines=[replace(one, model=replace(one.model, engine=engine))])
    question = WhatIfQuestion(
        whole.window, Edits(arguments={"max_num_seqs": "4"}), objectives=[within("e2e_s <= 1000")]
    )
    found = predict(small, question, 0)
    (objective,) = found.objectives
    assert objective.good_ratio_now == 1.0
    assert objective.good_ratio.value == pytest.approx(
        1 - found.rejected / found.requests, abs=0.01
    )
    too_long = replace(question, edits=Edits(arguments={"max_model_len": "1024"}))
    found = predict(whole, too_long, 0)
    assert found.rejected > 0
    assert found.objectives[0].good_ratio.value == 1.0


def test_more_replicas_offset_a_higher_rate() -> None:
    higher = answer(Edits(rates=[RateEdit(factor=2.0)]))
    more = answer(Edits(rates=[RateEdit(factor=2.0)], replicas=2, router="least_outstanding"))
    value = higher.predicted["tpot_s"]["p50"].value
    assert value is not None
    assert value > 1.05 * (higher.now["tpot_s"]["p50"] or 0)
    assert more.predicted["tpot_s"]["p50"].value == pytest.approx(
        more.now["tpot_s"]["p50"], rel=0.1
    )


def test_each_engine_keeps_its_own_requests() -> None:
    both = recorded(2)
    assert len(both.engines) == 2
    rows = np.sort(np.concatenate([each.rows for each in both.engines]))
    assert (rows == np.arange(both.requests.num_rows)).all()
    assert answer(Edits(output=1.01), replicas=2).refused is None


def test_a_short_window_has_at_least_ten_blocks() -> None:
    since_s, length_s, number = blocks_of(recorded())
    assert since_s == pytest.approx(LEAD_S, abs=5)
    assert length_s == 10
    assert number == SECONDS / length_s
    (drawn,) = resampled(recorded(), np.random.default_rng(1)).arrivals
    assert (np.diff(drawn.received_s) >= 0).all()
    assert drawn.received_s.max() <= since_s + SECONDS


def test_rejected_requests_are_counted() -> None:
    found = answer(Edits(arguments={"max_model_len": "1024"}))
    assert found.rejected > 0


def test_a_window_that_is_not_reproduced_gets_no_prediction() -> None:
    whole = recorded()
    slow = [
        replace(
            each,
            model=replace(
                each.model,
                engine=replace(
                    each.model.engine,
                    step=replace(each.model.engine.step, base_s=each.model.engine.step.base_s * 2),
                ),
            ),
        )
        for each in whole.engines
    ]
    question = WhatIfQuestion(whole.window, Edits(output=2.0))
    found = predict(replace(whole, engines=slow), question, 0)
    assert found.refused is not None
    assert "allowed: 25%" in found.refused
    assert not found.predicted


def test_a_filter_reports_its_requests_and_replays_all() -> None:
    whole = recorded()
    tenant = whole.tenants[-1]
    question = WhatIfQuestion(whole.window, Edits(output=1.1), {"tenant": tenant})
    found = predict(whole, question, 0)
    assert 0 < found.requests < whole.counted.sum()


def test_an_edit_that_is_not_allowed_is_an_error() -> None:
    with pytest.raises(EditError, match="max_num_seqs: 'x'"):
        answer(Edits(arguments={"max_num_seqs": "x"}))


def test_too_many_replicas_for_the_memory_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.loop.MAX_BYTES", 10**7)
    with pytest.raises(EditError, match=r"1,000 engines .* of memory; allowed"):
        answer(Edits(replicas=1_000))


def test_too_few_requests_are_refused() -> None:
    data, window = simulated()
    some = data.request_table().select([*REQUEST_COLUMNS, "http_status"]).slice(0, 150)
    with pytest.raises(NotReplayableError, match="needed: at least 100"):
        recorded_of(some, data.sample_table(), data.starts, window)


def test_an_engine_without_samples_is_refused() -> None:
    data, window = simulated()
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    with pytest.raises(NotReplayableError, match="sent no samples"):
        recorded_of(requests, data.sample_table().slice(0, 0), data.starts, window)
    with pytest.raises(NotReplayableError, match="arguments were not reported"):
        recorded_of(requests, data.sample_table(), [], window)


@cache
def deployed(deploy_s: int) -> tuple[Dataset, Window]:
    """Return a replica that restarts with slower steps."""
    deploy = SimulatedFault(cause="config_change", start_s=float(deploy_s))
    return simulated_window(
        240,
        seed=12,
        replicas=1,
        engine=ENGINE,
        workload=Workload(rate_per_s=4.0),
        faults=(deploy,),
    )


def test_a_prediction_after_a_deploy_is_about_the_present_arguments() -> None:
    data, window = deployed(LEAD_S + 95)
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    found = recorded_of(requests, data.sample_table(), data.starts, window, present_only=True)
    *_, after = data.starts
    assert found.window.from_unix_ns == after.at_unix_ns + LEAD_S * 10**9
    (why,) = [each for each in found.left_out if "restarted" in each]
    assert why.startswith(f"received until 60 s after replica {after.replica} restarted")
    assert why.endswith("(model.enforce_eager: False to True)")
    received = pc.greater_equal(requests["received_unix_ns"], window.from_unix_ns)
    assert found.left_out[why] + int(found.counted.sum()) == pytest.approx(
        requests.filter(received).num_rows, abs=5
    )
    # The truth is the same traffic on a server with the present arguments only.
    changed = replace(ENGINE, enforce_eager=True, max_num_batched_tokens=1024)
    config = replace(data.config, faults=(), engine=changed)
    table = run(config).request_table()
    truth = table.filter(pc.greater_equal(table["received_unix_ns"], found.window.from_unix_ns))
    median_s = np.median(np.asarray(truth["tpot_s"].drop_null()))
    edits = Edits(arguments={"max_num_batched_tokens": "1024"})
    predicted = predict(found, WhatIfQuestion(window, edits), 0)
    assert predicted.predicted["tpot_s"]["p50"].value == pytest.approx(median_s, rel=0.02)
    assert predicted.window == found.window
    assert predicted.throughput_rps == pytest.approx(4.0, rel=0.2)


def test_too_few_requests_since_a_deploy_are_refused() -> None:
    data, window = deployed(LEAD_S + 175)
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    expected = r"needed: at least 100\. [\d,]+ requests are left out: .* restarted .* later\."
    with pytest.raises(NotReplayableError, match=expected):
        recorded_of(requests, data.sample_table(), data.starts, window, present_only=True)
    assert recorded_of(requests, data.sample_table(), data.starts, window).window == window


def test_only_a_deploy_of_the_needed_replica_leaves_out_requests() -> None:
    data, window = deployed(LEAD_S + 95)
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    found = recorded_of(
        requests, data.sample_table(), data.starts, window, "other-0", present_only=True
    )
    assert found.window == window


def of_replicas(requests: pa.Table, *names: str) -> pa.Table:
    """Return the requests with other replicas: row 0 belongs to the first name, and so on."""
    place = requests.column_names.index("replica")
    found = [names[row % len(names)] for row in range(requests.num_rows)]
    return requests.set_column(place, "replica", pa.array(found))


def with_unknown(unknown: int, of: int) -> pa.Table:
    """Return requests. Out of every `of` requests, `unknown` belong to a replica without start and
    samples."""
    data, _ = simulated()
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    known = requests["replica"][0].as_py()
    return of_replicas(requests, *["evil-0"] * unknown, *[known] * (of - unknown))


def test_an_engine_that_cannot_be_replayed_is_left_out() -> None:
    data, window = simulated()
    requests = with_unknown(1, 30)
    found = recorded_of(requests, data.sample_table(), data.starts, window)
    evil = requests.filter(pc.equal(requests["replica"], "evil-0"))
    reason = "replica evil-0: its engine's arguments were not reported"
    in_window = pc.greater_equal(evil["received_unix_ns"], window.from_unix_ns)
    assert found.left_out[reason] == evil.filter(in_window).num_rows > 0
    assert "evil-0" not in found.requests["replica"].to_pylist()
    assert [each.rows.tolist() for each in found.engines] == [[*range(found.requests.num_rows)]]
    answered = predict(found, WhatIfQuestion(window, Edits(replicas=2)), 0)
    assert answered.refused is None
    assert answered.left_out == found.left_out
    only = WhatIfQuestion(window, Edits(replicas=2), {"replica": "evil-0"})
    with pytest.raises(NotReplayableError, match=f"has replica=evil-0.*{reason}"):
        predict(found, only, 0)


def test_engines_with_the_same_shortened_name_are_both_left_out() -> None:
    data, window = simulated()
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    long, known = "evil-" * 20, requests["replica"][0].as_py()
    names = [f"{long}0", f"{long}1", *[known] * 58]
    found = recorded_of(of_replicas(requests, *names), data.sample_table(), data.starts, window)
    assert set(found.requests["replica"].to_pylist()) == {known}
    assert sum(found.left_out.values()) + int(found.counted.sum()) == sum(
        window.from_unix_ns <= at < window.to_unix_ns
        for at in requests["received_unix_ns"].to_pylist()
    )


def test_a_large_share_of_an_engine_that_cannot_be_replayed_is_refused() -> None:
    data, window = simulated()
    requests = with_unknown(1, 4)
    known = data.starts[0].replica
    expected = "replica evil-0: .* requests cannot be replayed; allowed: at most 5%"
    for needed in (None, "evil-0"):
        with pytest.raises(NotReplayableError, match=expected):
            recorded_of(requests, data.sample_table(), data.starts, window, needed)
    found = recorded_of(requests, data.sample_table(), data.starts, window, known)
    assert {each.replica for each in found.engines} == {known}


def test_a_replica_without_phases_is_refused_only_if_it_is_needed() -> None:
    data, window = simulated()
    requests = with_unknown(1, 4)
    place = requests.column_names.index("queue_s")
    unseen = pc.equal(requests["replica"], "evil-0")
    queue_s = pc.if_else(unseen, pa.scalar(None, pa.float64()), requests["queue_s"])
    requests = requests.set_column(place, "queue_s", queue_s)
    known = data.starts[0].replica
    assert recorded_of(requests, data.sample_table(), data.starts, window, known).engines
    with pytest.raises(NotReplayableError, match="Install the plugin on every server"):
        recorded_of(requests, data.sample_table(), data.starts, window)


def test_only_the_first_engines_that_are_left_out_are_named() -> None:
    data, window = simulated()
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    known = data.starts[0].replica
    unknown = [f"evil-{number}" for number in range(5)]
    found = recorded_of(
        of_replicas(requests, *unknown, *[known] * 145),
        data.sample_table(),
        data.starts,
        window,
    )
    named = [reason for reason in found.left_out if "arguments" in reason]
    assert len(named) == 3
    assert found.left_out["2 more engines, which cannot be replayed"] > 0


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        ({"parallel.pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"scheduler.max_num_seqs": None}, "max_num_seqs"),
    ],
)
def test_a_feature_that_is_not_modelled_is_named(beside: dict[str, object], reason: str) -> None:
    arguments = {**ENGINE.arguments(), **beside}
    known = {name: value for name, value in arguments.items() if value is not None}
    with pytest.raises(NotReplayableError, match=reason):
        engine_config(known)


def test_arguments_become_the_configuration_that_sent_them() -> None:
    sent = replace(ENGINE, async_scheduling=True)
    found = engine_config(sent.arguments())
    names = ("max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks", "max_model_len")
    for name in (*names, "async_scheduling"):
        assert getattr(found, name) == getattr(sent, name)


def test_clients_that_wait_slow_down_instead_of_queueing() -> None:
    whole, clients = recorded(), 8
    waiting = [
        replace(
            each,
            arrivals=replace(
                each.arrivals, after=np.maximum(np.arange(len(each.arrivals)) - clients, -1)
            ),
        )
        for each in whole.engines
    ]
    few = Edits(arguments={"max_num_seqs": "4"})
    saturated = [
        replayed(each, traffic_of(each), few, "now", np.random.default_rng(0)).saturated
        for each in (whole, replace(whole, engines=waiting))
    ]
    assert saturated == [True, False]


def test_a_filter_does_not_change_the_cost_of_1000_requests() -> None:
    """The engines' cost is divided by all requests, not only by those that match the filter."""
    whole = recorded()
    edits = Edits(rates=[RateEdit(factor=1.5)])
    (tenant, *_) = (each for each in whole.tenants if each is not None)
    costs = []
    for equals in ({}, {"tenant": tenant}):
        question = WhatIfQuestion(whole.window, edits, equals, usd_per_hour=7.2)
        found = predict(whole, question, 0)
        costs.append((found.usd_per_1000_requests, found.predicted_usd_per_1000_requests))
    assert found.requests < whole.counted.sum()
    assert costs[0] == costs[1]
    assert costs[0][0] == pytest.approx(7.2 / 3.6 * SECONDS / int(whole.counted.sum()))


def test_ttft_is_that_of_streamed_responses() -> None:
    """The first byte of a response that is not streamed is sent at its end."""
    half = recorded_window(*simulated(), half_streamed=True)
    question = WhatIfQuestion(half.window, Edits(output=1.01), objectives=[within("ttft_s <= 0.5")])
    found = predict(half, question, 3)
    streamed_s = half.column("ttft_s")[half.counted & half.streamed]
    whole_s = half.column("ttft_s")[half.counted & ~half.streamed]
    for point, q in (("p50", 0.5), ("p99", 0.99)):
        now = found.now["ttft_s"][point]
        assert now == pytest.approx(np.nanquantile(streamed_s, q), rel=0.05)
        assert found.predicted["ttft_s"][point].value == pytest.approx(now, rel=0.15)
        assert found.reproduced["ttft_s"][point].error_ratio == pytest.approx(0, abs=0.15)
    (objective,) = found.objectives
    all_s = np.concatenate([streamed_s, whole_s])
    assert objective.good_ratio_now == pytest.approx((all_s <= 0.5).mean(), abs=0.01)
    assert objective.good_ratio.value == pytest.approx(objective.good_ratio_now, abs=0.03)


def test_an_argument_of_the_wrong_type_is_a_reason_not_to_replay() -> None:
    data, window = simulated()
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    many = {"scheduler.max_num_seqs": "many"}
    starts = [
        replace(start, arguments=written({**read(start.arguments), **many}), version="v0.32.0")
        for start in data.starts
    ]
    with pytest.raises(NotReplayableError, match=r"an argument without meaning: .*many"):
        recorded_of(requests, data.sample_table(), starts, window)


def with_waiting_clients(requests: pa.Table, clients: int) -> pa.Table:
    """Return the requests of one tenant, whose clients send each request after an answer."""
    e2e_s = requests["e2e_s"].to_numpy()
    first_ns = requests["received_unix_ns"][0].as_py()
    free_s = [0.01 * client for client in range(clients)]
    received_ns = []
    for each in e2e_s.tolist():
        at_s = heappop(free_s)
        received_ns.append(first_ns + int(at_s * 1e9))
        heappush(free_s, at_s + each)
    for name, column in (
        ("received_unix_ns", pa.array(received_ns)),
        ("tenant", pa.array(["acme"] * requests.num_rows)),
    ):
        requests = requests.set_column(requests.column_names.index(name), name, column)
    return requests


@pytest.mark.parametrize("replicas", [1, 2])
def test_waiting_clients_are_found_over_all_engines(replicas: int) -> None:
    """The requests of a client on several engines are not linked."""
    data, window = simulated(replicas=2, rate_per_s=8.0)
    requests = data.request_table().select([*REQUEST_COLUMNS, "http_status"])
    names = sorted({each.replica for each in data.starts})[:replicas]
    served_by = np.random.default_rng(1).choice(names, requests.num_rows).tolist()
    requests = of_replicas(with_waiting_clients(requests, 12), *served_by)
    found = recorded_of(requests, data.sample_table(), data.starts, window)
    (tenant,) = [found.tenants[each] for each in found.waiting]
    assert tenant == "acme"
    assert any(each.waiting for each in found.engines) == (replicas == 1)


@pytest.mark.parametrize(
    ("edits", "linked", "waits"),
    [(Edits(), True, True), (Edits(), False, False), (Edits(router="round_robin"), True, False)],
)
def test_the_answer_states_whether_waiting_clients_wait(
    edits: Edits, linked: bool, waits: bool
) -> None:
    whole = recorded(2)
    engines = [replace(each, waiting=(0,) if linked else ()) for each in whole.engines]
    found = predict(
        replace(whole, engines=engines, waiting=(0,)), WhatIfQuestion(whole.window, edits), 0
    )
    (sentence,) = [each for each in found.extrapolated if whole.tenants[0] in each]
    assert ("wait for each answer" in sentence) == waits
    assert ("at the recorded times" in sentence) != waits


def test_prefill_and_decode_servers_are_replayed_one_by_one() -> None:
    apart = replace(recorded(2), prefill_apart=True)
    question = WhatIfQuestion(apart.window, edits_of(["max_num_seqs=32"]))
    (note,) = [each for each in predict(apart, question, 0).extrapolated if "prefill" in each]
    assert "each server's row counts as a request" in note
    for edit in ("replicas=3", "router=round_robin", "data_parallel_size=2"):
        moved = WhatIfQuestion(apart.window, edits_of([edit]))
        with pytest.raises(EditError, match="allowed: other engine arguments"):
            predict(apart, moved, 0)
    advised = advise(apart, question, "queue_s", 0)
    assert not any(each.lever.edits.pools for each in advised.advice)
    assert "one more replica: prefill and decode are on different servers" in advised.unknown


@pytest.mark.parametrize("prefill_replicas", [0, 1])
def test_a_recording_knows_whether_servers_only_prefill(
    tmp_path: Path, prefill_replicas: int
) -> None:
    data, window = simulated_window(40, seed=11, replicas=2, prefill_replicas=prefill_replicas)
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    put(engine, *data.requests, *data.samples, *data.starts)
    assert read_recorded(engine, window).prefill_apart is (prefill_replicas == 1)
    engine.dispose()
