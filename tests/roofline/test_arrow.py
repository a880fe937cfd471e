import numpy as np
import pyarrow as pa

from roofline.arrow import EngineKey, engines_of, gpus_of


def a_table(**columns: object) -> pa.Table:
    """Return samples of two engines of one replica and one engine of another."""
    return pa.table(
        {
            "replica": pa.array(["b", "a", "a", "a"]).dictionary_encode(),
            "engine": [0, 1, 0, 0],
            "process": [1, 1, 1, 2],
            "at_unix_ns": [1, 2, 3, 4],
            "started_unix_ns": [2**62 + 1, 2**62 + 1, 2**62 + 1, 2**62 + 1],
            "steps_total": [1, 2, 3, None],
            "model": ["m", "m", "m", "m"],
            **columns,
        }
    )


def test_each_engine_has_its_own_samples() -> None:
    found = engines_of(a_table())
    assert list(found) == [EngineKey("a", 0), EngineKey("a", 1), EngineKey("b", 0)]
    engine = found[EngineKey("a", 0)]
    assert engine.at_unix_ns.tolist() == [3, 4]
    assert "model" not in engine.numbers
    np.testing.assert_array_equal(engine.number("steps_total"), [3.0, np.nan])


def test_processes_and_starts_are_separate_series() -> None:
    starts = a_table(process=[1, 1, 1, 1], started_unix_ns=[0, 0, 2**62, 2**62 + 1])
    engine = engines_of(starts)[EngineKey("a", 0)]
    assert len(set(engine.series.tolist())) == 2


def test_gpus_are_those_of_the_replica() -> None:
    table = pa.table({"replica": ["a", "b"], "at_unix_ns": [1, 2], "sm_active_ratio": [0.5, 0.7]})
    gpus = gpus_of(table, "b")
    assert gpus is not None
    assert gpus.number("sm_active_ratio").tolist() == [0.7]
    assert gpus_of(table, "c") is None


def test_an_empty_table_has_no_engine() -> None:
    assert engines_of(a_table().slice(0, 0)) == {}
