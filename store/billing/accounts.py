"""What a bill rests on, read at once: engines and GPUs by stretches, requests by label and hour."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Engine

from store.billing.billed_requests import charged
from store.queries import Window
from store.replicas.engine_starts import in_force, starts_between
from store.rollups.counter_spans import Stretches
from store.rollups.marks import SECOND_NS
from store.rollups.sample_rollups import known_from_unix_s, stretches
from store.rollups.tables import LABELS
from telemetry.accounts import Accounts, Count, EngineStretches, GpuStretches
from telemetry.starts import MOST_LOADING_S

BASE: Final = ("replica", "outcome", "model")
"""The labels that a bill needs, whatever it is asked by."""


def accounts(engine: Engine, window: Window, by: Sequence[str] = ()) -> Accounts:
    """Read what a bill of a window rests on.

    Args:
        engine: from `open_database`.
        window: widened to whole minutes, or to hours where minutes are gone.
        by: labels to tell requests apart by, beside BASE.

    Raises:
        ValueError: a label that rollups do not tell.
        StoreUnavailable: the database does not answer.
    """
    if unknown := set(by) - set(LABELS):
        raise ValueError(f"no bill by {sorted(unknown)[0]!r}; allowed: {', '.join(LABELS)}")
    read = charged(engine, window, tuple(dict.fromkeys((*BASE, *by))))
    start, end = read.window.from_unix_ns, read.window.to_unix_ns
    engines, gpus = stretches(engine, read.window)
    known_from = known_from_unix_s(engine)
    return Accounts(
        from_unix_ns=start,
        to_unix_ns=end,
        engines=_engines(engines),
        gpus=_gpus(gpus),
        cells=read.cells,
        # One just after the window may have been loading within it.
        starts=(
            *in_force(engine, start),
            *starts_between(engine, start + 1, end + int(MOST_LOADING_S) * SECOND_NS),
        ),
        simulated=read.simulated or bool(engines.simulated.any()),
        apportioned=read.apportioned,
        engines_from_unix_ns=read.gone_ns if known_from is None else known_from * SECOND_NS,
        overflowed=read.overflowed,
    )


def _engines(told: Stretches) -> EngineStretches:
    return EngineStretches(
        counts=[Count(*each) for each in told.things],
        regions=told.about,
        which=told.which,
        bucket_unix_s=told.bucket_unix_s,
        first_unix_ns=told.first_unix_ns,
        last_unix_ns=told.last_unix_ns,
        first=told.first,
        last=told.last,
        coefficients=told.means,
    )


def _gpus(told: Stretches) -> GpuStretches:
    return GpuStretches(
        gpus=[(replica, gpu) for replica, gpu in told.things],
        models=told.about,
        which=told.which,
        bucket_unix_s=told.bucket_unix_s,
        first_unix_ns=told.first_unix_ns,
        last_unix_ns=told.last_unix_ns,
        first_j=told.first["energy_j_total"],
        last_j=told.last["energy_j_total"],
    )
