import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry

from exporters.definitions.engine_series import ROOFLINES
from exporters.totals import rooflines
from exporters.totals.latest_starts import LatestStarts
from exporters.totals.rooflines import RooflineMetrics
from telemetry.engines import EngineSample
from telemetry.starts import EngineStart
from tests.roofline.configs import llama_3_8b

S = 10**9
LABELS = {"model": "llama", "replica": "r1", "engine": "0"}
Factory = Callable[..., EngineSample]


def a_start(**changes: Any) -> EngineStart:
    shape = {key: value for key, value in llama_3_8b().items() if key != "architectures"}
    return EngineStart(
        **{
            "replica": "r1",
            "engine": 0,
            "process": 1,
            "at_unix_ns": 1,
            "config": "c",
            "arguments": "{}",
            "device": "NVIDIA H100 80GB HBM3",
            "shape": json.dumps(shape),
            **changes,
        }
    )


def steps_of(second: int) -> dict[str, Any]:
    steps = second / 0.016
    return {
        "steps_total": steps,
        "busy_s_total": float(second),
        "scheduled_prefill_tokens_total": 0,
        "prefill_attention_total": 0.0,
        "context_tokens_total": steps * 32 * 8192,
        "decodes_total": steps * 32,
    }


def metrics(clock: Any, *starts: EngineStart) -> RooflineMetrics:
    return RooflineMetrics(LatestStarts(lambda _: starts, clock).of, clock)


def work(exporter: RooflineMetrics, clock: Any, sample_row: Factory, seconds: int = 10) -> None:
    for second in range(seconds + 1):
        exporter.on_stored([], [sample_row(**steps_of(second))])
        clock.advance(1)


def read(exporter: RooflineMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    return registry.get_sample_value(ROOFLINES[name].name, {**LABELS, **labels})


def test_utilisation_of_the_last_minute(clock: Any, sample_row: Factory) -> None:
    """A step moves 49.4 GB in 16 ms, and the peak is 3.35 TB/s."""
    exporter = metrics(clock, a_start())
    work(exporter, clock, sample_row, seconds=90)
    assert read(exporter, "mbu") == pytest.approx(0.921, abs=2e-3)
    assert read(exporter, "mfu") == pytest.approx(0.039, abs=2e-3)
    assert read(exporter, "modelled_bytes_per_s") == pytest.approx(3.1e12, rel=0.02)
    assert len(exporter._engines["r1", 0].rows) <= 61


@pytest.mark.parametrize(
    "changes",
    [
        {"replica": "another"},
        {"engine": 1},
        {"shape": None, "device": None},
        {"shape": "{}", "device": None},
    ],
)
def test_engines_with_an_unknown_start_are_omitted(
    changes: dict[str, Any], clock: Any, sample_row: Factory
) -> None:
    exporter = metrics(clock, a_start(**changes))
    work(exporter, clock, sample_row)
    assert list(exporter.families()) == []


def test_an_unknown_device_has_bytes_and_no_utilisation(clock: Any, sample_row: Factory) -> None:
    exporter = metrics(clock, a_start(device="cpu"))
    work(exporter, clock, sample_row)
    assert read(exporter, "modelled_bytes_per_s") is not None
    assert read(exporter, "mbu") is None


def test_a_silent_engines_series_end(clock: Any, sample_row: Factory) -> None:
    exporter = metrics(clock, a_start())
    work(exporter, clock, sample_row)
    clock.advance(61)
    assert list(exporter.families()) == []
    assert exporter._engines == {}


def test_a_silent_engines_series_end_after_the_clock_was_set_back(
    clock: Any, sample_row: Factory
) -> None:
    exporter = metrics(clock, a_start())
    work(exporter, clock, sample_row)
    clock.advance(-3_600)
    assert list(exporter.families()) == []


def test_an_idle_engine_is_absent(clock: Any, sample_row: Factory) -> None:
    exporter = metrics(clock, a_start())
    for _ in range(5):
        exporter.on_stored([], [sample_row(**steps_of(7))])
        clock.advance(1)
    assert list(exporter.families()) == []


def test_starts_are_asked_for_now_and_then(clock: Any, sample_row: Factory) -> None:
    """A scrape must not read the store each time, or fail with the store."""
    asked: list[int] = []

    def starts(replicas: Collection[str]) -> Sequence[EngineStart]:
        assert replicas == {a_start().replica}
        asked.append(clock())
        if len(asked) > 1:
            raise OSError("away")
        return [a_start()]

    exporter = RooflineMetrics(LatestStarts(starts, clock).of, clock)
    work(exporter, clock, sample_row)
    assert read(exporter, "mbu") is not None
    list(exporter.families())
    assert len(asked) == 1
    clock.advance(31)
    assert read(exporter, "mbu") is not None
    assert len(asked) == 2


def test_engines_are_bounded(
    clock: Any, sample_row: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooflines, "MAX_ENGINES", 3)
    exporter = metrics(clock)
    exporter.on_stored([], [sample_row(replica=f"r{number}") for number in range(9)])
    assert len(exporter._engines) == 3


def test_one_engines_samples_are_bounded(
    clock: Any, sample_row: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.totals.rooflines.MAX_ROWS", 10)
    exporter = metrics(clock, a_start())
    for number in range(50):
        exporter.on_stored([], [sample_row(at_unix_ns=clock() - number % 3 * S)])
    (engine,) = exporter._engines.values()
    assert len(engine.rows) == 10
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    left_out = "tailspan_roofline_left_out_samples_total"
    assert registry.get_sample_value(left_out, {"of": "sample"}) == 40


def test_many_engines_give_the_same_results_as_each_alone(clock: Any, sample_row: Factory) -> None:
    begun_unix_ns = clock.unix_ns
    starts = [a_start(replica=f"r{number}") for number in range(1, 5)]
    starts[2] = a_start(replica="r3", device="NVIDIA A100-SXM4-80GB")
    alone = {}
    for start in starts:
        clock.unix_ns = begun_unix_ns
        exporter = metrics(clock, start)
        _work_of(exporter, clock, sample_row, [start.replica])
        alone[start.replica] = _read_all(exporter, start.replica)
    clock.unix_ns = begun_unix_ns
    together = metrics(clock, *starts)
    _work_of(together, clock, sample_row, list(alone))
    assert {replica: _read_all(together, replica) for replica in alone} == alone
    assert len({values[1] for values in alone.values()}) == len(alone)


def test_an_impossible_shape_affects_one_engine(clock: Any, sample_row: Factory) -> None:
    impossible = json.dumps({**llama_3_8b(), "hidden_size": 1e200})
    exporter = metrics(clock, a_start(), a_start(replica="r2", shape=impossible))
    _work_of(exporter, clock, sample_row, ["r1", "r2"])
    assert None not in _read_all(exporter, "r1")
    assert read(exporter, "mbu", replica="r2") is None


@pytest.mark.parametrize("astray_s", [-(10**9), 10**9])
def test_a_wrong_clock_affects_one_engine(astray_s: int, clock: Any, sample_row: Factory) -> None:
    starts = [a_start(replica=replica) for replica in ("r1", "r2")]
    exporter = metrics(clock, *starts)
    _work_of(exporter, clock, sample_row, ["r1", "r2"])
    before = _read_all(exporter, "r1")
    lost = sample_row(replica="r2", at_unix_ns=clock() + astray_s * S, **steps_of(11))
    exporter.on_stored([], [lost])
    assert _read_all(exporter, "r1") == before
    for second in range(12, 15):
        exporter.on_stored([], [sample_row(replica="r2", **steps_of(second))])
        clock.advance(1)
    assert _read_all(exporter, "r2")[1] is not None


def _work_of(
    exporter: RooflineMetrics, clock: Any, sample_row: Factory, replicas: list[str]
) -> None:
    """Add samples; replica n starts n seconds late and reads n tenths less context."""
    for second in range(12):
        for replica in replicas:
            number = int(replica[1:])
            work = steps_of(second)
            work["context_tokens_total"] *= 1 - number / 10
            if second >= number:
                exporter.on_stored([], [sample_row(replica=replica, **work)])
        clock.advance(1)


def _read_all(exporter: RooflineMetrics, replica: str) -> list[float | None]:
    return [read(exporter, name, replica=replica) for name in ROOFLINES]
