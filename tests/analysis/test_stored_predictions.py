import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from analysis.compare.parts import PercentileParts
from analysis.corrected_prediction import Predicted
from analysis.stored_predictions import (
    AGAIN_NS,
    Deployed,
    canonical,
    deployed,
    expected,
    replicas_of,
    store_answer,
)
from analysis.what_if import WhatIfAnswer
from analysis.window_replay import METRICS
from replay.engine_config import EngineConfig
from store.predictions import Prediction, predictions
from store.writer import Writer
from telemetry.starts import Argument, EngineStart, written
from telemetry.window import Window

BEFORE, AFTER = Window(1_000, 2_000), Window(2_000, 3_000)
REPORTED = dict(EngineConfig().arguments())
ASKED = Prediction(
    1_500, "max_num_seqs=64", 0, 1, '{"ttft": {"p99": [-0.1, -0.2, 0.0]}}', simulated=False
)
MADE = Deployed("max_num_seqs=64", 2_000)


def start(replica: str, at_unix_ns: int, **changed: Argument | None) -> EngineStart:
    """Return a start with changed arguments. The value None removes an argument."""
    given = {**REPORTED, **{name.replace("__", "."): each for name, each in changed.items()}}
    arguments = {name: each for name, each in given.items() if each is not None}
    return EngineStart(
        replica=replica,
        engine=0,
        process=at_unix_ns,
        at_unix_ns=at_unix_ns,
        config=str(hash(written(arguments))),
        arguments=written(arguments),
    )


def change(engine: Engine, *starts: EngineStart, served: Any = ({"r0"}, {"r0"})) -> str | None:
    with Writer(engine) as writer:
        writer.submit([], [], starts=starts).result(10)
    found = deployed(engine, BEFORE, AFTER, served)
    assert found is None or found.at_unix_ns == 2_000
    return None if found is None else found.change


def answer(*edits: str, now_s: float | None = 1.0, **changed: Any) -> WhatIfAnswer:
    points = dict.fromkeys(("p50", "p90", "p95", "p99"))
    found = WhatIfAnswer(
        Window(5, 6),
        *(1_000, edits, {}, None),
        now={name: dict.fromkeys(points, now_s) for name in METRICS},
        throughput_rps=1.0,
        all_rps=1.0,
        usd_per_hour=None,
        left_out={},
        simulated=False,
        predicted={name: dict.fromkeys(points, Predicted(0.9, 0.8, 1.0)) for name in METRICS},
    )
    return replace(found, **changed)


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        (["replicas=2", "max_num_seqs=064"], "max_num_seqs=64,replicas=2"),
        (["enable_prefix_caching=off"], "enable_prefix_caching=false"),
        (["scheduling_policy=priority"], "scheduling_policy=priority"),
        (["max_num_seqs=64", "rate=2x"], None),
        (["replicas=2", "router=least_outstanding"], "replicas=2"),
        (["router=round_robin"], None),
        (["max_num_seqs=64", "router=round_robin"], None),
        (["device=NVIDIA H200"], None),
        ([], None),
    ],
)
def test_a_change_has_one_form_and_traffic_is_no_change_of_the_servers(
    edits: list[str], found: str | None
) -> None:
    assert canonical(edits) == found


def test_a_deploy_has_the_form_of_its_prediction(engine: Engine) -> None:
    both = change(
        engine,
        start("r0", 500),
        start("r0", 2_000, scheduler__max_num_seqs=64, cache__enable_prefix_caching=False),
        start("r1", 2_000, scheduler__max_num_seqs=64, cache__enable_prefix_caching=False),
        served=({"r0"}, {"r0", "r1"}),
    )
    assert both == canonical(["replicas=2", "max_num_seqs=64", "enable_prefix_caching=0"])


def test_one_more_replica_is_a_change(engine: Engine) -> None:
    starts = (start("r0", 500), start("r1", 2_000, cache__num_gpu_blocks=7))
    assert change(engine, *starts, served=({"r0"}, {"r0", "r1"})) == "replicas=2"


@pytest.mark.parametrize(
    "starts",
    [
        (start("r0", 500), start("r0", 2_000)),
        # What-if cannot change `enforce_eager`.
        (
            start("r0", 500),
            start("r0", 2_000, scheduler__max_num_seqs=64, model__enforce_eager="x"),
        ),
        # What-if cannot remove `num_gpu_blocks_override`.
        (
            start("r0", 500),
            start("r0", 2_000, scheduler__max_num_seqs=64, cache__num_gpu_blocks_override=None),
        ),
        # The engines differ during a rolling deployment, or if one is a canary.
        (start("r0", 500), start("r1", 500), start("r0", 2_000, scheduler__max_num_seqs=64)),
    ],
)
def test_servers_without_one_known_difference_have_no_change(
    engine: Engine, starts: tuple[EngineStart, ...]
) -> None:
    served = {each.replica for each in starts}
    assert change(engine, *starts, served=(served, served)) is None
    assert deployed(engine, BEFORE, AFTER, ({"r9"}, {"r9"})) is None


def test_requests_of_an_unknown_replica_are_left_out() -> None:
    assert replicas_of(pa.chunked_array([["r0", None, "r0"]])) == {"r0"}


def test_the_latest_earlier_prediction_of_the_change_is_beside_the_measured_one() -> None:
    older = replace(ASKED, asked_unix_ns=1_400, predicted='{"ttft": {"p99": [0.5, 0.4, 0.6]}}')
    later = replace(ASKED, asked_unix_ns=2_000)
    other = replace(ASKED, asked_unix_ns=1_700, change="replicas=2")
    parts = PercentileParts(1.0, 0.95, 0.95, 1.0, 1.0)
    known = [later, other, ASKED, older]
    found = expected(known, MADE, "ttft", "p99", parts)
    assert found is not None
    assert found.asked_unix_ns == 1_500
    assert found.measured == pytest.approx(-0.05)
    assert found.contained
    worse = expected(known, MADE, "ttft", "p99", parts._replace(compared_s=1.1))
    assert worse is not None
    assert not worse.contained
    for asked in (
        (known, None, "ttft", "p99", parts),
        (known, Deployed("max_num_seqs=32", 2_000), "ttft", "p99", parts),
        (known, Deployed("max_num_seqs=64", 1_400), "ttft", "p99", parts),
        (known, MADE, "tpot", "p99", parts),
        (known, MADE, "ttft", "p99", None),
    ):
        assert expected(*asked) is None


def test_a_prediction_is_kept_once_an_hour_with_relative_intervals(engine: Engine) -> None:
    asked = answer("max_num_seqs=64")
    for at in (10**15, 10**15 + AGAIN_NS - 1, 10**15 + AGAIN_NS):
        store_answer(engine, asked, {}, at)
    newest, oldest = predictions(engine)
    assert newest.asked_unix_ns - oldest.asked_unix_ns == AGAIN_NS
    assert (newest.change, newest.from_unix_ns, newest.to_unix_ns) == ("max_num_seqs=64", 5, 6)
    found = json.loads(newest.predicted)
    assert found["ttft"]["p99"] == pytest.approx([-0.1, -0.2, 0.0])
    assert found["queue"].keys() == {"p50", "p95", "p99"}


def test_a_prediction_from_the_future_does_not_replace_later_ones(engine: Engine) -> None:
    """The clock of a machine was a day ahead, and was then set back."""
    asked = answer("max_num_seqs=64")
    ahead_ns = 10**15 + 24 * AGAIN_NS
    for at in (ahead_ns, 10**15, 10**15 + 1):
        store_answer(engine, asked, {}, at)
    assert [each.asked_unix_ns for each in predictions(engine)] == [ahead_ns, 10**15]


@pytest.mark.parametrize(
    "asked",
    [
        answer("rate=2x"),
        answer("max_num_seqs=64", saturated=True),
        answer("max_num_seqs=64", refused="too few requests"),
    ],
)
def test_what_no_deploy_can_confirm_is_not_kept(engine: Engine, asked: WhatIfAnswer) -> None:
    assert store_answer(engine, asked, {}, 10**15) is None
    assert store_answer(engine, answer("max_num_seqs=64"), {"tenant": "acme"}, 10**15) is None
    assert predictions(engine) == []


def test_a_percentile_without_a_prediction_is_left_out(engine: Engine) -> None:
    row = store_answer(engine, answer("max_num_seqs=64", now_s=None), {}, 10**15)
    assert row is not None
    assert json.loads(row.predicted)["ttft"] == {}
