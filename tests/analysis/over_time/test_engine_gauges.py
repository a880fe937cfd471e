import numpy as np
import pyarrow as pa

from analysis.over_time import engine_gauges as engines
from tests.ui.conftest import make_fleet

SECOND_NS = 1_000_000_000


def samples(*rows: tuple[str, int, int, int | None, int | None, float | None]) -> pa.Table:
    """Return samples from (replica, engine, second, waiting, running, KV usage)."""
    types = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.float64())
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    values = [list(column) for column in columns]
    values[2] = [second * SECOND_NS for second in values[2]]
    return pa.table(
        {n: pa.array(v, t) for n, v, t in zip(engines.COLUMNS, values, types, strict=True)}
    )


def test_a_burst_within_a_bin_is_seen() -> None:
    made = samples(*(("r1", 0, s, 90 if s == 31 else 0, 1, 0.5) for s in range(3600)))
    found = engines.gauges_of(made, 0, 3600 * SECOND_NS)
    assert np.nanmax(found.lines["r1"]["waiting"]) == 90
    assert found.bins.count <= engines.MAX_POINTS


def test_silence_is_a_gap() -> None:
    made = samples(("r1", 0, 0, 1, None, 0.5), ("r1", 0, 2, 3, None, None))
    found = engines.gauges_of(made, 0, 3 * SECOND_NS).lines["r1"]
    assert [None if np.isnan(v) else v for v in found["waiting"].tolist()] == [1, None, 3]
    assert np.isnan(found["running"]).all()


def test_several_engines_of_a_replica_are_numbered() -> None:
    alone = engines.gauges_of(samples(("r1", 0, 0, 1, 1, 0.1)), 0, SECOND_NS)
    assert list(alone.lines) == ["r1"]
    pair = engines.gauges_of(
        samples(("r1", 0, 0, 1, 1, 0.1), ("r1", 1, 0, 2, 1, 0.1)), 0, SECOND_NS
    )
    assert list(pair.lines) == ["r1 · engine 0", "r1 · engine 1"]


def test_many_engines_are_drawn_together() -> None:
    made = samples(*((f"r{i}", 0, 0, 2, 3, i / 100) for i in range(40)))
    found = engines.gauges_of(made, 0, SECOND_NS)
    assert found.together
    (line,) = found.lines.values()
    assert (line["waiting"][0], line["running"][0], line["kv_usage_ratio"][0]) == (80, 120, 0.39)


def test_no_samples_make_an_empty_strip() -> None:
    assert engines.gauges_of(samples(), 0, SECOND_NS).lines == {}


def test_samples_of_a_fleet_keep_their_extremes() -> None:
    _, made = make_fleet(10, 0, 3600)
    table = samples(
        *((s.replica, 0, s.at_unix_ns // SECOND_NS, s.waiting, s.running, None) for s in made)
    )
    found = engines.gauges_of(table, 0, 3600 * SECOND_NS)
    for replica, line in found.lines.items():
        assert np.nanmax(line["waiting"]) == max(
            s.waiting or 0 for s in made if s.replica == replica
        )
