"""Read the data for a bill: engine and GPU time, and requests by label and hour."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Engine

from store.access.restricted import access_of
from store.billing.billed_requests import billed_requests
from store.replicas.engine_starts import in_force, starts_between
from store.rollups.counter_spans import CounterSpans
from store.rollups.marks import SECOND_NS
from store.rollups.sample_rollups import known_from_unix_s, read_counter_spans
from store.rollups.tables import LABELS
from telemetry.billing_data import BillingData, CounterKey, EngineCounterSpans, GpuEnergySpans
from telemetry.starts import MAX_LOADING_S
from telemetry.store_errors import NotAllowed
from telemetry.window import Window

BASE: Final = ("replica", "outcome", "model")


def read_billing_data(engine: Engine, window: Window, by: Sequence[str] = ()) -> BillingData:
    """Read the data for the bill of a window.

    Args:
        window: widened to whole minutes, or to hours if the per-minute rollups were deleted.
        by: labels to group requests by, in addition to `BASE`.

    Raises:
        NotAllowed: see `check_bill`.
        ValueError: a label in `by` is not a label of rollups.
    """
    if unknown := set(by) - set(LABELS):
        raise ValueError(
            f"cannot group a bill by {sorted(unknown)[0]!r}; allowed: {', '.join(LABELS)}"
        )
    check_bill(engine)
    read = billed_requests(engine, window, tuple(dict.fromkeys((*BASE, *by))))
    start, end = read.window.from_unix_ns, read.window.to_unix_ns
    engines, gpus = read_counter_spans(engine, read.window)
    known_from = known_from_unix_s(engine)
    return BillingData(
        from_unix_ns=start,
        to_unix_ns=end,
        engines=_engines(engines),
        gpus=_gpus(gpus),
        cells=read.cells,
        # An engine that was ready shortly after the window may have been loading in it.
        starts=(
            *in_force(engine, start),
            *starts_between(engine, start + 1, end + int(MAX_LOADING_S) * SECOND_NS),
        ),
        simulated=read.simulated or bool(engines.simulated.any()),
        apportioned=read.apportioned,
        engines_from_unix_ns=read.deleted_before_ns
        if known_from is None
        else known_from * SECOND_NS,
        overflowed=read.overflowed,
    )


def check_bill(engine: Engine) -> None:
    """Check that a reader may see a bill.

    Raises:
        NotAllowed: the reader's role hides dollars, or some of the requests.
    """
    access = access_of(engine)
    if access is None:
        return
    if not access.costs:
        raise NotAllowed("your role does not allow costs")
    if access.limits_rows:
        raise NotAllowed(
            "a bill contains the requests of all tenants and models, and your role does not allow"
            " all of them; cost_usd has the cost of each request that you may see"
        )


def _engines(spans: CounterSpans) -> EngineCounterSpans:
    return EngineCounterSpans(
        counts=[CounterKey(*each) for each in spans.owners],
        regions=spans.about,
        which=spans.which,
        bucket_unix_s=spans.bucket_unix_s,
        first_unix_ns=spans.first_unix_ns,
        last_unix_ns=spans.last_unix_ns,
        first=spans.first,
        last=spans.last,
        coefficients=spans.means,
    )


def _gpus(spans: CounterSpans) -> GpuEnergySpans:
    return GpuEnergySpans(
        gpus=[(replica, gpu) for replica, gpu in spans.owners],
        models=spans.about,
        which=spans.which,
        bucket_unix_s=spans.bucket_unix_s,
        first_unix_ns=spans.first_unix_ns,
        last_unix_ns=spans.last_unix_ns,
        first_j=spans.first["energy_j_total"],
        last_j=spans.last["energy_j_total"],
    )
