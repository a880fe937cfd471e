"""Convert the store's Arrow tables to columns, for each engine and its GPUs. A null becomes NaN.
Pure."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roofline.load import FloatArray, IntArray
from roofline.samples import Columns
from telemetry.counter_series import series_numbers


class EngineKey(NamedTuple):
    """Identifies an engine by its replica and number."""

    replica: str
    engine: int


def engines_of(samples: pa.Table) -> dict[EngineKey, Columns]:
    """The samples of each engine from a table of `EngineSample`s."""
    keys = samples.group_by(["replica", "engine"]).aggregate([])
    found = {}
    for key in sorted(
        EngineKey(str(row["replica"]), int(row["engine"])) for row in keys.to_pylist()
    ):
        mine = samples.filter(
            pc.and_(
                pc.equal(samples["replica"].cast(pa.string()), key.replica),
                pc.equal(samples["engine"], key.engine),
            )
        )
        found[key] = Columns(
            at_unix_ns=_instants(mine), series=_series(mine), numbers=_numbers(mine)
        )
    return found


def gpus_of(samples: pa.Table, replica: str) -> Columns | None:
    """The samples of a replica's GPUs from a table of `GpuSample`s.

    Return None for an empty table."""
    mine = samples.filter(pc.equal(samples["replica"].cast(pa.string()), replica))
    if not mine.num_rows:
        return None
    return Columns(at_unix_ns=_instants(mine), numbers=_numbers(mine))


def _instants(table: pa.Table) -> IntArray:
    return np.asarray(table["at_unix_ns"].to_numpy(), dtype=np.int64)


def _series(table: pa.Table) -> IntArray:
    """A number that identifies the process of each row: (n,). A restarted process gets a new
    number, because its totals begin at 0 again."""
    return series_numbers(*(table[name].to_numpy() for name in ("process", "started_unix_ns")))


def _numbers(table: pa.Table) -> dict[str, FloatArray]:
    return {
        field.name: np.asarray(
            table[field.name].cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64
        )
        for field in table.schema
        if not field.name.endswith("_unix_ns")
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    }
