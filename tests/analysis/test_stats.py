from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats import StatsQuestion, answer_stats, group_stats
from store.database import open_database
from telemetry.requests import STORED_LATENCIES, Outcome
from telemetry.window import Window


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", None]),
            st.sampled_from([0, 1, None]),
            st.sampled_from(list(Outcome)),
            st.none() | st.floats(0, 100),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_the_groups_partition_the_requests(
    rows: list[tuple[str | None, int | None, Outcome, float | None]],
) -> None:
    found = pa.table(
        {
            "tenant": pa.array([row[0] for row in rows], pa.string()),
            "engine": pa.array([row[1] for row in rows], pa.int64()),
            "outcome": [row[2].value for row in rows],
            "output_tokens": pa.array([row[1] for row in rows], pa.int64()),
            **{name: pa.array([row[3] for row in rows], pa.float64()) for name in STORED_LATENCIES},
        }
    )
    expected: dict[tuple[object, object], list[Outcome]] = defaultdict(list)
    for tenant, engine, outcome, _ in rows:
        expected[tenant, engine].append(outcome)
    groups = group_stats(found, ["tenant", "engine"], Window(0, 10**9))
    assert {
        (g["tenant"], g["engine"]): (g["requests"], g["errors"], g["aborted"]) for g in groups
    } == {
        labels: (len(ended), ended.count(Outcome.ERROR), ended.count(Outcome.ABORT))
        for labels, ended in expected.items()
    }
    assert [g["requests"] for g in groups] == sorted((g["requests"] for g in groups), reverse=True)


def test_sketches_without_rollups_are_refused(tmp_path: Path) -> None:
    """The answer states its precision, so it must not be another one than asked for."""
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    window = Window(0, 10**9)
    with pytest.raises(ValueError, match="no rollups"):
        answer_stats(engine, StatsQuestion(window, precision="sketch"))
    assert answer_stats(engine, StatsQuestion(window)).precision == "exact"
    engine.dispose()
