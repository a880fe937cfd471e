"""Divide the time that each probe waited into phases. Pure."""

import numpy as np

from analysis.outside.answer import PHASES
from telemetry.probes import SET_UP_PARTS
from telemetry.quantiles import FloatArray

COLUMNS = (*SET_UP_PARTS, "first_event_s", "first_content_s", "e2e_s")


def phases(seconds: dict[str, FloatArray], server_s: FloatArray) -> FloatArray:
    """The seconds of each phase as (probes, PHASES). Each row sums to `e2e_s`.

    An instant that is out of order is moved just far enough to be in order. An example is a first
    event after the end.

    Args:
        seconds: the columns `COLUMNS`, each (probes,), with NaN for unknown values; `e2e_s` is
            known.
        server_s: (probes,) time to the first event at the server. NaN if the store has no row from
            the server.
    """
    e2e_s = seconds["e2e_s"]
    set_up = [np.nan_to_num(seconds[name]) for name in SET_UP_PARTS]
    first_s = np.fmin(seconds["first_event_s"], e2e_s)
    content_s = np.clip(
        np.where(np.isnan(seconds["first_content_s"]), first_s, seconds["first_content_s"]),
        first_s,
        e2e_s,
    )
    paired = ~np.isnan(server_s)
    server = np.where(paired, np.fmin(server_s, first_s), 0.0)
    parts = dict(
        zip(
            PHASES,
            (
                *set_up,
                server,
                np.where(paired, first_s - server, 0.0),
                np.where(paired, 0.0, first_s),
                content_s - first_s,
                e2e_s - content_s,
            ),
            strict=True,
        )
    )
    found: FloatArray = np.column_stack([parts[name] for name in PHASES])
    return found
