import numpy as np
import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import ENGINE_COLUMNS, GPU_COLUMNS, requests_of
from diagnosis.inputs.servers import no_samples
from store.schema import GPUS, SAMPLES


def test_nulls_are_nan_and_labels_are_codes() -> None:
    first = pa.table(
        {
            "received_unix_ns": pa.array([1, 2], pa.int64()),
            "ttft_s": pa.array([0.5, None], pa.float32()),
            "tenant": pa.array(["a", None]).dictionary_encode(),
            "replica": ["x", "y"],
        }
    )
    later = first.set_column(2, "tenant", pa.array(["b", "a"]).dictionary_encode())
    found = requests_of(pa.concat_tables([first, later]))
    assert found.number("ttft_s").dtype == np.float64
    assert found.number("ttft_s").tolist() == pytest.approx([0.5, np.nan] * 2, nan_ok=True)
    tenant, replica = found.label("tenant"), found.label("replica")
    assert [tenant.values[code] if code >= 0 else None for code in tenant.codes] == [
        *("a", None),
        *("b", "a"),
    ]
    assert [replica.values[code] for code in replica.codes] == ["x", "y"] * 2
    assert np.isnan(found.number("queue_s")).all()


def test_a_column_is_made_when_it_is_asked_for() -> None:
    table = pa.table(
        {"received_unix_ns": [1, 2], "ttft_s": [1.0, 2.0], "queue_s": ["no", "number"]}
    )
    found = requests_of(table)
    assert found.rows(np.array([1])).number("ttft_s").tolist() == [2.0]
    with pytest.raises(pa.ArrowInvalid):
        found.number("queue_s")


def test_the_columns_of_samples_are_columns_of_the_store() -> None:
    assert set(ENGINE_COLUMNS) <= set(SAMPLES.columns.keys())
    assert set(GPU_COLUMNS) <= set(GPUS.columns.keys())


def test_a_column_that_is_not_read_from_the_store_is_an_error() -> None:
    assert no_samples().number("waiting").size == 0
    with pytest.raises(ValueError, match="column of samples: 'steps_total'; allowed: engine"):
        no_samples().number("steps_total")
