"""Select the requests before and after a change (the two sides), and compute their work. Pure.

The input contains all requests of the engines. Requests that are not compared are needed too,
because they take time in the same steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.compare.parts import ObservedRequests
from analysis.compare.shared_work import Instants, SharedWork, shared_work
from analysis.compare.work_terms import METRICS, load_terms, mix_terms
from replay.arrivals import BoolArray, FloatArray, IntArray

COLUMNS: Final = (
    *("received_unix_ns", "replica", "engine", "model", "tenant", "route", "lora"),
    *("outcome", "source"),
    *("frontend_s", "queue_s", "prefill_s", "decode_s", "ttft_s", "tpot_s", "itl_max_s", "e2e_s"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "streamed"),
)
MODEL: Final = "model"
GROUPED: Final = (MODEL, "tenant", "route", "lora")
_NS: Final = 10**9


class Groups(NamedTuple):
    """The groups of n requests."""

    number: IntArray
    model: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SideRequests:
    """All requests of some engines in a range, with the work of other requests that run at the same
    time."""

    table: pa.Table
    instants: Instants
    around: SharedWork
    ended_s: FloatArray
    """(n,) when each request ended, in seconds since the first request was received."""

    @property
    def received_unix_ns(self) -> IntArray:
        """When each request was received: (n,)."""
        return np.asarray(self.table["received_unix_ns"].to_numpy())

    def observed(
        self, metric: str, groups: Groups, chosen: BoolArray
    ) -> tuple[ObservedRequests, IntArray]:
        """Return the chosen requests with a known latency, and their row numbers in the table.

        TTFT is compared only for streamed responses. The first byte of other responses is sent at
        the end.

        Args:
            metric: a key of `METRICS`.
            groups: from `group_numbers`.
        """
        value_s = _floats(self.table, METRICS[metric])
        mix = mix_terms(metric, self.instants)
        load = load_terms(metric, self.instants, self.around)
        known = np.isfinite(value_s) & np.isfinite(mix).all(axis=1) & np.isfinite(load).all(axis=1)
        if metric == "ttft":
            streamed = pc.fill_null(self.table["streamed"], True)
            known &= streamed.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(chosen & known)
        found = ObservedRequests(
            at_s=self.instants.received_s,
            value_s=value_s,
            group=groups.number,
            model=groups.model,
            mix=mix,
            load=load,
            running=self.around.running,
        )
        return found.take(rows), rows


def requests_of(table: pa.Table) -> SideRequests:
    """Compute the requests of one side from a table, with the work of other requests that run at
    the same time.

    If the phases are unknown, the time to the first token counts as the prefill. The rest of the
    time counts as the decode.

    Args:
        table: requests with `COLUMNS`, in order of receipt, of all engines of a range.
    """
    received_ns = np.asarray(table["received_unix_ns"].to_numpy())
    received_s = (received_ns - (received_ns[0] if received_ns.size else 0)) / _NS
    e2e_s = np.nan_to_num(_floats(table, "e2e_s"))
    queued_s = np.nan_to_num(_floats(table, "frontend_s")) + np.nan_to_num(
        _floats(table, "queue_s")
    )
    to_first_s = queued_s + _floats(table, "prefill_s")
    to_first_s = np.where(np.isfinite(to_first_s), to_first_s, _floats(table, "ttft_s"))
    to_first_s = np.where(np.isfinite(to_first_s), to_first_s, e2e_s)
    decode_s = _floats(table, "decode_s")
    decode_s = np.where(np.isfinite(decode_s), decode_s, np.maximum(e2e_s - to_first_s, 0.0))
    prompt = np.nan_to_num(_floats(table, "prompt_tokens"))
    cached = np.minimum(np.nan_to_num(_floats(table, "cached_tokens")), prompt)
    engine = pc.fill_null(table["engine"].cast(pa.string()), "0")
    replica = pc.fill_null(table["replica"].cast(pa.string()), "")
    instants = Instants(
        engine=_codes([replica, engine], table.num_rows),
        received_s=received_s,
        scheduled_s=received_s + queued_s,
        first_token_s=received_s + to_first_s,
        last_token_s=received_s + to_first_s + decode_s,
        uncached_tokens=prompt - cached,
        cached_tokens=cached,
        output_tokens=np.nan_to_num(_floats(table, "output_tokens")),
    )
    return SideRequests(table, instants, shared_work(instants), received_s + e2e_s)


def group_numbers(tables: Sequence[pa.Table], without: Sequence[str] = ()) -> list[Groups]:
    """The numbers of each request's group and model.

    Requests with the same model, tenant, route and adapter have the same number in all tables.

    Args:
        without: labels that groups ignore. They select the two sides, so their values differ
            between the sides.
    """
    names = [name for name in GROUPED if name not in without]
    whole = pa.concat_tables([each.select(list(GROUPED)) for each in tables])
    columns = {name: pc.fill_null(whole[name].cast(pa.string()), "") for name in names}
    ends = np.cumsum([each.num_rows for each in tables])[:-1]
    numbers = np.split(_codes([*columns.values()], whole.num_rows), ends)
    of_model = [column for name, column in columns.items() if name == MODEL]
    models = np.split(_codes(of_model, whole.num_rows), ends)
    return [Groups(*each) for each in zip(numbers, models, strict=True)]


def renamed(sides: Sequence[tuple[pa.Table, BoolArray]]) -> list[str]:
    """Return the labels that groups must ignore, because the change renamed the model.

    Args:
        sides: pairs of a table of requests and a mask of its rows. The first pair has the requests
            before the change..
    """
    names = [set(table[MODEL].filter(pa.array(rows)).unique().to_pylist()) for table, rows in sides]
    new = any(each and not each & names[0] for each in names[1:])
    return [MODEL] if names[0] and new else []


def _codes(columns: Sequence[pa.ChunkedArray], size: int) -> IntArray:
    found = np.zeros(size, dtype=np.int64)
    for column in columns:
        _, codes = np.unique(column.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
        _, found = np.unique(found * (codes.max(initial=0) + 1) + codes, return_inverse=True)
    return found.reshape(-1).astype(np.int64)


def _floats(table: pa.Table, name: str) -> FloatArray:
    return np.asarray(table[name].cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
