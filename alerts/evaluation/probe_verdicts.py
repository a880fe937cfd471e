"""Judge probes: whether an objective selects a probe, and whether the probe was good.

- A probe that was not sent (`missed`, `over_budget`) is not selected.
- A probe that the prober stopped (`abort`) is excluded.
- Any other probe without a complete answer is bad, even if the server refused it (4xx), as in
  `tailspan_probe_success`.
- If `good` needs an unknown value, the probe is excluded.
- If a cache in front of the model answered (`cached`), the durations of the answer are unknown.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import FUNCTIONS, NOT_SELECTED, VERDICTS, holds
from alerts.expression import Expression, FieldComparison, IsUnknown, comparisons
from alerts.fields import PROBE_ANSWER_DURATIONS, WAIT
from store.schema import arrow_type
from telemetry.probes import WAIT_PARTS, Probe, ProbeOutcome

_CODE: Final = {verdict: place for place, verdict in enumerate(VERDICTS)}
_ANSWERED: Final = [each.value for each in ProbeOutcome if each.succeeded]
_NOT_SENT: Final = [each.value for each in ProbeOutcome if not each.sent]


def columns_of_probes(*expressions: Expression | None) -> tuple[str, ...]:
    """Columns of probes that the verdicts on these expressions need."""
    named = [leaf.field for each in expressions if each for leaf in comparisons(each)]
    return tuple(dict.fromkeys(["outcome", *WAIT_PARTS, *(each for each in named if each != WAIT)]))


def table_of_probes(probes: Sequence[Probe], columns: Sequence[str]) -> pa.Table:
    """A table of probes that need not be in the store."""
    return pa.table(
        {
            name: pa.array([getattr(each, name) for each in probes], arrow_type(name, Probe))
            for name in columns
        }
    )


def lasted_s(table: pa.Table) -> pa.ChunkedArray:
    """Time from the intended start of each probe to its end or failure. `table` has
    `WAIT_PARTS`."""
    first, *rest = (pc.fill_null(table[name], 0.0) for name in WAIT_PARTS)
    for each in rest:
        first = pc.add(first, each)
    return first


def _wait_s(table: pa.Table) -> pa.ChunkedArray:
    """The seconds that each probe waited, or null if the connection was never established."""
    return pc.if_else(pc.is_null(table["e2e_s"]), pa.scalar(None, pa.float64()), lasted_s(table))


def judge_probes(where: Expression | None, good: Expression, table: pa.Table) -> np.ndarray:
    """Verdicts as indices into VERDICTS, or NOT_SELECTED (n,) int8. `table` has the columns of
    `columns_of_probes`."""

    outcome = table["outcome"].cast(pa.string())
    cached = pc.equal(outcome, ProbeOutcome.CACHED.value)

    def leaf(part: FieldComparison | IsUnknown) -> pa.ChunkedArray:
        values = _wait_s(table) if part.field == WAIT else table[part.field]
        if part.field in PROBE_ANSWER_DURATIONS:
            values = pc.if_else(cached, pa.scalar(None, values.type), values)
        if isinstance(part, IsUnknown):
            return pc.is_null(values)
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        return FUNCTIONS[part.operator](values, pa.scalar(part.value, kind))

    met = holds(good, leaf)
    codes = np.select(
        [
            _mask(pc.equal(outcome, ProbeOutcome.ABORT.value)),
            _mask(pc.invert(pc.is_in(outcome, pa.array(_ANSWERED)))),
            _mask(pc.fill_null(pc.invert(met), False)),
            _mask(pc.fill_null(met, False)),
        ],
        [
            _CODE[RequestVerdict.ABORTED],
            _CODE[RequestVerdict.BAD],
            _CODE[RequestVerdict.BAD],
            _CODE[RequestVerdict.GOOD],
        ],
        _CODE[RequestVerdict.UNKNOWN],
    ).astype(np.int8)
    selected = _mask(pc.invert(pc.is_in(outcome, pa.array(_NOT_SENT))))
    if where is not None:
        selected &= _mask(pc.fill_null(holds(where, leaf), False))
    codes[~selected] = NOT_SELECTED
    return codes


def _mask(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
