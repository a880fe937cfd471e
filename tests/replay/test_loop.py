from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import loop, reference
from replay.arrivals import Arrivals, Prefixes
from replay.conditions import Conditions, Pace, Stall
from replay.engine_config import EngineConfig
from replay.front_end import FrontEndModel
from replay.outcome import ReplayOutcome
from replay.server_model import ROUTERS, ServerModel
from replay.step_model import EIGHT_B_ON_H100

pytestmark = pytest.mark.timeout(600)  # the loop may have to be compiled
LADDER_TOKENS = (16, 48, 100)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    loop.warm()


def _same(one: ReplayOutcome, other: ReplayOutcome) -> None:
    for mine, its in ((one, other), (one.engines, other.engines)):
        for each in fields(mine):
            if each.name != "engines":
                np.testing.assert_allclose(
                    getattr(mine, each.name),
                    getattr(its, each.name),
                    rtol=0,
                    atol=1e-9,
                    err_msg=each.name,
                )


@st.composite
def _engines(draw: Any) -> EngineConfig:
    """Draw a small engine that usually lacks one resource."""
    block_size = draw(st.sampled_from([8, 16]))
    return EngineConfig(
        max_num_seqs=draw(st.sampled_from([1, 3, 6, 40])),
        max_num_batched_tokens=draw(st.sampled_from([40, 64, 150, 1000])),
        max_num_queued_reqs=draw(st.sampled_from([3, 1000])),
        max_model_len=320,
        num_gpu_blocks=draw(st.sampled_from([320 // block_size, 48, 400])),
        block_size=block_size,
        enable_prefix_caching=draw(st.booleans()),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 16, 50])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        num_speculative_tokens=draw(st.sampled_from([0, 0, 1, 3])),
        enforce_eager=draw(st.booleans()),
        max_loras=draw(st.sampled_from([1, 2, 4])),
        max_cpu_loras=4,
        step=replace(
            EIGHT_B_ON_H100,
            prefill_token_s=3.1e-4,
            prefill_step_s=draw(st.sampled_from([0.0, 0.02])),
        ),
        step_noise_ratio=draw(st.sampled_from([0.0, 0.2])),
        step_noise_quantiles=draw(st.sampled_from([(), (0.7, 1.0, 1.1, 2.0)])),
    )


@st.composite
def _models(draw: Any) -> ServerModel:
    return ServerModel(
        engine=draw(_engines()),
        front_end=FrontEndModel(
            running_s=draw(st.sampled_from([0.0, 1e-3])),
            first_byte_sequence_s=draw(st.sampled_from([0.0, 2e-3])),
            flush_sequence_s=draw(st.sampled_from([0.0, 2e-3])),
            pace=draw(st.sampled_from([1.0, 7.3])),
        ),
        replicas=draw(st.sampled_from([1, 1, 2, 3])),
        router=draw(st.sampled_from(ROUTERS)),
        affinity_slack=draw(st.sampled_from([0, 2, 12])),
    )


@st.composite
def _arrivals(draw: Any) -> Arrivals:
    """Draw a few requests; some share prefixes, and some follow others."""
    n = draw(st.integers(1, 25))

    def column(values: Any, kind: type = np.int64) -> Any:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)), dtype=kind)

    def maybe(values: Any, kind: type = np.int64) -> Any:
        return column(values, kind) if draw(st.booleans()) else None

    prompts = column(st.integers(1, 220))
    prefixes = None
    if draw(st.booleans()):
        # The prefixes form a tree with two branches at each length in `LADDER_TOKENS`. A ladder
        # ends soon after the prompt's end.
        keys: list[int] = []
        ends: list[int] = []
        offsets = [0]
        for prompt in prompts:
            key = 1
            for end in LADDER_TOKENS:
                if end > prompt + 40:
                    break
                key = 2 * key + draw(st.integers(0, 1))
                keys.append(key)
                ends.append(end)
            offsets.append(len(keys))
        prefixes = Prefixes(
            offsets=np.array(offsets),
            keys=np.array(keys, dtype=np.int64),
            end_tokens=np.array(ends, dtype=np.int64),
        )
    after = None
    if draw(st.booleans()):
        after = np.array([draw(st.integers(-1, row - 1)) for row in range(n)])
    return Arrivals(
        received_s=np.cumsum(column(st.floats(0.0, 0.08), np.float64)),
        prompt_tokens=prompts,
        output_tokens=column(st.integers(1, 110)),
        prefixes=prefixes,
        cached_tokens=maybe(st.integers(0, 150)),
        frontend_s=maybe(st.one_of(st.floats(0.0, 0.2), st.just(float("nan"))), np.float64),
        held_s=maybe(st.floats(0.0, 0.3), np.float64),
        adapter=maybe(st.integers(-1, 3)),
        priority=maybe(st.integers(-1, 2)),
        acceptance=maybe(st.floats(0.0, 1.0), np.float64),
        streamed=maybe(st.booleans(), np.bool_),
        after=after,
        think_s=maybe(st.floats(0.0, 0.3), np.float64),
    )


CONDITIONS = st.sampled_from(
    [
        Conditions(),
        Conditions(
            stalls=(
                (Stall(0.1, 0.2), Stall(0.7, 0.3), Stall(0.9, 0.05, in_full=True)),
                (Stall(0.4, 1.0, in_full=True), Stall(0.4, 0.2)),
            ),
            paces=((Pace(0.05, 1.7), Pace(0.6, 0.8)),),
        ),
    ]
)


@given(model=_models(), arrivals=_arrivals(), conditions=CONDITIONS)
def test_the_loop_gives_the_same_outcome_as_the_reference(
    model: ServerModel, arrivals: Arrivals, conditions: Conditions
) -> None:
    """Every option is tested, with few and with many resources. Results agree within 1e-9 s."""
    _same(
        loop.replay(model, arrivals, "seed", conditions),
        reference.replay(model, arrivals, "seed", conditions),
    )


@given(model=_models(), arrivals=_arrivals(), conditions=CONDITIONS)
def test_the_phases_sum_to_the_whole(
    model: ServerModel, arrivals: Arrivals, conditions: Conditions
) -> None:
    """frontend + queue + prefill + decode + delivery is the time from receipt to the last byte."""
    out = loop.replay(model, arrivals, "", conditions)
    phases = (out.frontend_s, out.queue_s, out.prefill_s, out.decode_s, out.delivery_s)
    served = ~out.rejected
    assert all((phase[served] >= -1e-12).all() for phase in phases)
    np.testing.assert_allclose(sum(phases), out.e2e_s, atol=1e-9)
    assert (out.ttft_s[served] <= out.e2e_s[served]).all()
    assert (out.cached_tokens[served] < arrivals.prompt_tokens[served]).all()
    assert np.isnan(out.e2e_s[out.rejected]).all()
    assert out.preemptions.sum() == out.engines.preemptions.sum()


def _traffic(n: int = 200, **columns: Any) -> Arrivals:
    chance = np.random.default_rng(7)
    given: dict[str, Any] = {
        "received_s": np.cumsum(chance.exponential(0.05, n)),
        "prompt_tokens": chance.integers(10, 900, n),
        "output_tokens": chance.integers(1, 120, n),
    }
    return Arrivals(**{**given, **columns})


def test_the_seed_determines_the_outcome() -> None:
    traffic = _traffic()
    first, again = (loop.replay(ServerModel(), traffic, "a") for _ in range(2))
    other = loop.replay(ServerModel(), traffic, "b")
    _same(first, again)
    assert not np.array_equal(first.e2e_s, other.e2e_s)


def test_the_input_arrivals_are_not_changed() -> None:
    n = 40
    after = np.arange(n) - 4
    after[:4] = -1
    traffic = _traffic(n, after=after)
    before = traffic.received_s.copy()
    out = loop.replay(ServerModel(), traffic)
    np.testing.assert_array_equal(traffic.received_s, before)
    np.testing.assert_allclose(
        out.received_s[4:], out.received_s[after[4:]] + out.e2e_s[after[4:]], atol=1e-9
    )


def test_a_slower_server_lowers_the_rate_of_closed_clients() -> None:
    """Four clients that wait for their responses never have more than four requests in flight."""
    n = 80
    after = np.arange(n) - 4
    after[:4] = -1
    traffic = _traffic(n, after=after)
    slow = ServerModel(engine=EngineConfig(max_num_seqs=1))
    one, other = (loop.replay(model, traffic) for model in (ServerModel(), slow))
    assert other.received_s[-1] > one.received_s[-1]
    for out in (one, other):
        ends = out.received_s + out.e2e_s
        in_flight = [(out.received_s <= at) & (at < ends) for at in out.received_s]
        assert max(each.sum() for each in in_flight) <= 4


def test_the_reported_limit_is_the_reason_for_the_queue() -> None:
    traffic = _traffic(received_s=np.zeros(200))
    roomy = EngineConfig(max_model_len=2048)

    def binds(**edit: Any) -> str:
        return loop.replay(ServerModel(engine=replace(roomy, **edit)), traffic).binds

    assert binds(max_num_seqs=4) == "seats"
    assert binds(num_gpu_blocks=140) == "kv"
    assert binds(max_num_batched_tokens=256) == "tokens"
    assert loop.replay(ServerModel(engine=roomy), _traffic(3)).binds == "none"


def test_an_unsupported_option_is_refused_by_the_loop() -> None:
    model = ServerModel(engine=replace(EngineConfig(), kv_connector=True))
    with pytest.raises(loop.NotReplayedError, match="kv_connector"):
        loop.replay(model, _traffic(3))


def test_requests_with_an_adapter_need_an_engine_with_adapters() -> None:
    with pytest.raises(loop.NotReplayedError, match="max_loras: 0; some requests have an adapter"):
        loop.replay(ServerModel(), _traffic(3, adapter=np.array([-1, 0, 1])))


def test_few_adapter_slots_make_requests_wait() -> None:
    traffic = _traffic(adapter=np.arange(200) % 8)
    few, many = (
        loop.replay(ServerModel(engine=EngineConfig(max_loras=slots, max_cpu_loras=8)), traffic)
        for slots in (2, 8)
    )
    assert few.queue_s.mean() > 5 * many.queue_s.mean()


def test_engines_that_need_too_much_memory_are_refused() -> None:
    """Each engine has a table of all prefixes that prompts share."""
    n = 5_000
    prefixes = Prefixes(offsets=np.arange(n + 1), keys=np.arange(n), end_tokens=np.full(n, 640))
    traffic = _traffic(n, prompt_tokens=np.full(n, 700), prefixes=prefixes)
    with pytest.raises(loop.NotReplayedError, match="of memory; allowed"):
        loop.replay(ServerModel(replicas=10_000), traffic)


def test_no_requests_are_no_work() -> None:
    none = np.zeros(0, dtype=np.int64)
    empty = Arrivals(received_s=np.zeros(0), prompt_tokens=none, output_tokens=none)
    out = loop.replay(ServerModel(replicas=2), empty)
    assert len(out.e2e_s) == 0
    assert out.engines.steps.tolist() == [0, 0]


def test_a_prefix_aware_router_finds_more_in_the_caches() -> None:
    """Prefix-aware routing makes each replica cache only some of the prefixes."""
    n = 300
    chance = np.random.default_rng(3)
    prefixes = Prefixes(
        offsets=np.arange(n + 1),
        keys=chance.integers(0, 12, n),
        end_tokens=np.full(n, 640),
    )
    traffic = _traffic(n, prompt_tokens=np.full(n, 700), prefixes=prefixes)
    model = ServerModel(engine=EngineConfig(max_model_len=1024, num_gpu_blocks=400), replicas=4)
    found = {
        router: loop.replay(replace(model, router=router), traffic).cached_tokens.sum()
        for router in ROUTERS
    }
    assert found["prefix_aware"] > 1.3 * found["round_robin"]
    assert found["prefix_aware"] > 1.3 * found["least_outstanding"]


def test_recorded_cached_tokens_are_not_computed() -> None:
    """Without prefixes, the replay uses the number of cached tokens that was recorded."""
    n = 50
    traffic = _traffic(n, prompt_tokens=np.full(n, 500), cached_tokens=np.full(n, 480))
    out, without = (
        loop.replay(ServerModel(), each)
        for each in (traffic, _traffic(n, prompt_tokens=np.full(n, 500)))
    )
    assert (out.cached_tokens == 480).all()
    assert np.median(out.prefill_s) < np.median(without.prefill_s)


def test_without_a_folder_for_the_cache_the_loop_is_compiled_each_time() -> None:
    """A replay works in a read-only installation without a home folder."""
    from replay.kernel import _compiled

    made: dict[str, Any] = {}
    exec("def twice(x): return 2 * x", made)  # without a source file, numba has no cache folder
    assert _compiled(made["twice"])(4) == 8
