from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis.prefix_ladders import COMMON_FROM, prefixes_of, with_prefixes
from analysis.recorded_traffic import LEAD_S, REQUEST_COLUMNS, Recorded, recorded_of
from analysis.what_if import WhatIfQuestion, predict
from replay.arrivals import Arrivals, Prefixes
from replay.edits import Edits, RateEdit
from replay.engine_config import EngineConfig
from replay.loop import replay
from replay.server_model import Router as Rule
from replay.server_model import ServerModel
from simulator.conversations import Conversations
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig, Router
from simulator.workload import Workload
from telemetry.prefix_ladders import POSITIONS, Ladders, read_ladders
from telemetry.window import Window

SECONDS = 120
ENGINE = EngineConfig(max_num_seqs=64, num_gpu_blocks=12_000)


@cache
def simulated(router: Router, engine: EngineConfig = ENGINE) -> Dataset:
    workload = Workload(rate_per_s=9.0, conversations=Conversations(share=0.8, at_once=40))
    return run(
        FleetConfig(
            duration_s=LEAD_S + SECONDS,
            seed=5,
            replicas=3,
            engine=engine,
            router=router,
            workload=workload,
        )
    )


@cache
def recorded() -> Recorded:
    data = simulated("round_robin")
    window = Window(LEAD_S * 10**9, (LEAD_S + SECONDS) * 10**9)
    requests = data.request_table().select(REQUEST_COLUMNS)
    return recorded_of(requests, data.sample_table(), data.starts, window)


def hit_ratio(data: Dataset) -> float:
    """Return the share of prompt tokens that the simulated engines found in their caches."""
    table = data.request_table()
    table = table.filter(pc.greater_equal(table["received_unix_ns"], LEAD_S * 10**9))
    served = table.filter(pc.is_valid(table["cached_tokens"]))
    return float(pc.sum(served["cached_tokens"]).as_py() / pc.sum(served["prompt_tokens"]).as_py())


def replayed_hit_ratio(router: Rule, engine: EngineConfig = ENGINE) -> float:
    """Return the share of prompt tokens that the replay finds in the cache, with prefixes from
    ladders."""
    table = recorded().requests
    prompts, outputs, cached = (
        np.array(table[name].to_pylist())
        for name in ("prompt_tokens", "output_tokens", "cached_tokens")
    )
    prefixes, before = prefixes_of(read_ladders(table["prefix_ladder"].to_pylist()), cached)
    assert before[recorded().counted].mean() < 0.02
    traffic = Arrivals(
        received_s=(np.array(table["received_unix_ns"].to_pylist())) / 1e9,
        prompt_tokens=prompts,
        output_tokens=outputs,
        prefixes=prefixes,
    )
    outcome = replay(ServerModel(engine=engine, replicas=3, router=router), traffic)
    counted = recorded().counted
    return float(outcome.cached_tokens[counted].sum() / prompts[counted].sum())


def test_the_predicted_hit_rate_of_another_router_equals_the_simulated_one() -> None:
    now, then = hit_ratio(simulated("round_robin")), hit_ratio(simulated("cache_aware"))
    assert then > now + 0.1
    assert replayed_hit_ratio("round_robin") == pytest.approx(now, abs=0.03)
    assert replayed_hit_ratio("prefix_aware") == pytest.approx(then, abs=0.05)


def test_the_predicted_hit_rate_of_fewer_blocks_equals_the_simulated_one() -> None:
    few = replace(ENGINE, num_gpu_blocks=3_000)
    then = hit_ratio(simulated("round_robin", few))
    assert then < hit_ratio(simulated("round_robin")) - 0.05
    assert replayed_hit_ratio("round_robin", few) == pytest.approx(then, abs=0.04)


def test_a_question_about_the_router_gets_a_shorter_first_token() -> None:
    question = WhatIfQuestion(recorded().window, Edits(router="prefix_aware"))
    found = predict(recorded(), question, 2)
    assert found.refused is None
    assert found.extrapolated[0] == (
        "the prefixes that prompts share are taken from their prefix ladders"
    )
    prefill_s = found.predicted["ttft_s"]["p50"].value
    assert prefill_s is not None
    assert prefill_s < 0.9 * (found.now["ttft_s"]["p50"] or 0)


@pytest.mark.parametrize(
    ("edits", "used"),
    [
        (Edits(router="round_robin"), True),
        (Edits(replicas=4), True),
        (Edits(arguments={"num-gpu-blocks": "900"}), True),
        (Edits(rates=[RateEdit(factor=2.0)]), True),
        (Edits(arguments={"enable_prefix_caching": "false"}), False),
        (Edits(arguments={"max_num_seqs": "16"}, prompt=2.0), False),
    ],
)
def test_ladders_are_used_where_the_cache_would_find_something_else(
    edits: Edits, used: bool
) -> None:
    shared, assumptions = with_prefixes(recorded(), [Edits(), edits])
    assert [each.arrivals.prefixes is not None for each in shared.engines] == [used] * 3
    assert bool(assumptions) == used


def changed(ladders: Sequence[str | None]) -> Recorded:
    column = pa.array(ladders, pa.string())
    requests = recorded().requests
    place = requests.column_names.index("prefix_ladder")
    return replace(recorded(), requests=requests.set_column(place, "prefix_ladder", column))


def test_without_ladders_cached_tokens_stay_as_recorded() -> None:
    ladders = recorded().requests["prefix_ladder"].to_pylist()
    few = [each if place % 10 else None for place, each in enumerate(ladders)]
    # Ladders of each replica use a separate key.
    names = recorded().requests["replica"].to_pylist()
    own = [each[:3] + name[-1] * 4 + each[7:] for each, name in zip(ladders, names, strict=True)]
    for given, why in (
        ([None] * len(ladders), "no prefix ladders"),
        (["x" for _ in ladders], "no prefix ladders"),
        (few, "10% of the requests have no prefix ladder"),
        (own, "not comparable; set TAILSPAN_PREFIX_KEY to the same secret on all of them"),
    ):
        same, (assumption,) = with_prefixes(changed(given), [Edits(router="prefix_aware")])
        assert assumption.startswith("cached tokens of each request stay as recorded: ")
        assert assumption.endswith(why)
        assert all(each.arrivals.prefixes is None for each in same.engines)
    # An edit of one engine's cache needs no ladders of other engines.
    alone, _ = with_prefixes(changed(own), [Edits(arguments={"num_gpu_blocks": "900"})])
    assert all(each.arrivals.prefixes is not None for each in alone.engines)


def ladders_of(*requests: tuple[int, ...], block_tokens: int = 16) -> Ladders:
    return Ladders(
        np.full(len(requests), block_tokens),
        np.concatenate([[0], np.cumsum([1 + len(each) for each in requests])]),
        np.concatenate([[7, *each] for each in requests]).astype(np.uint32),
    )


def segments(prefixes: Prefixes, row: int) -> list[tuple[int, int]]:
    within = slice(prefixes.offsets[row], prefixes.offsets[row + 1])
    keys, ends = prefixes.keys[within].tolist(), prefixes.end_tokens[within].tolist()
    return list(zip(keys, ends, strict=True))


def nothing(ladders: Ladders) -> np.ndarray:
    return np.zeros(len(ladders.block_tokens), dtype=np.int64)


def test_requests_share_what_their_ladders_share() -> None:
    ladders = ladders_of((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 6), (9,), ())
    prefixes, before = prefixes_of(ladders, nothing(ladders))
    one, other, third = (segments(prefixes, row) for row in range(3))
    assert [end for _, end in one] == [32, 48]  # the first two rungs are always shared
    assert one == other
    assert third == one[:1]
    assert segments(prefixes, 3) == segments(prefixes, 4) == []
    assert not before.any()


def test_equal_rungs_after_different_ones_are_not_shared() -> None:
    ladders = ladders_of((1, 3, 4), (2, 3, 4))
    prefixes, _ = prefixes_of(ladders, nothing(ladders))
    assert not prefixes.keys.size


def test_a_segment_ends_where_the_cache_stopped_finding() -> None:
    """Ladders have a key after 10 and after 12 blocks, but none between them. So the number of
    cached tokens determines where the segment ends."""
    rungs = tuple(range(1, 10))  # up to 10 blocks
    ladders = ladders_of(rungs, (*rungs, 20), (*rungs, 30))
    assert POSITIONS[8:10] == (10, 12)
    prefixes, before = prefixes_of(ladders, np.array([0, 16 * 11, 16 * 11]))
    assert segments(prefixes, 0) == segments(prefixes, 1)
    assert [end for _, end in segments(prefixes, 0)] == [16 * 11]
    assert not before.any()


def test_prefixes_cached_before_the_recording_are_detected() -> None:
    ladders = ladders_of((1, 2), (1, 2), (5,))
    _, before = prefixes_of(ladders, np.array([32, 32, 0]))
    assert before.tolist() == [True, False, False]


def test_a_system_prompt_is_common_and_a_conversation_is_not() -> None:
    talks = [
        (1, 2, 10 * user, 10 * user + 1)[: 3 + turn]
        for user in range(1, COMMON_FROM + 2)
        for turn in range(2)
    ]
    ladders = ladders_of(*talks)
    prefixes, _ = prefixes_of(ladders, nothing(ladders))
    assert prefixes.common is not None
    assert prefixes.common.tolist() == [True, False] * len(talks)
    again = prefixes.select(np.repeat(np.arange(4), 2))
    system, mine = (again.keys[place::2].tolist() for place in (0, 1))
    assert len(set(system)) == 1
    first, copy, same, same_copy, *_ = mine
    assert (first, copy) == (same, same_copy)  # two turns of a user, and two of the user's copy
    assert first != copy
    assert len(set(mine)) == 4
