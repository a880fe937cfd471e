"""How often the measured latency was inside the confidence interval of an earlier prediction.

Up to ten deploys are compared in up to 20 s. The comparison therefore runs in the background, once
for all viewers.
"""

from typing import Any, Final

import streamlit as st

from analysis.over_time.time_bins import SECOND_NS
from analysis.track_record import TrackRecord, track_record
from ui.frame.background import background
from ui.frame.context import Context

EVERY_S: Final = 600
"""Seconds between two computations. Deploys are compared with ranges of up to an hour."""
_SUBJECT: Final = "track record"


def show(context: Context) -> Any:
    """Draw the newest record that was computed, and return its page element."""
    place = st.empty()
    _draw(context, place)
    return place


def complete(context: Context, place: Any) -> None:
    """Compute a newer record if it is due. Call this after everything else is drawn.

    A page that is not live waits for the record.
    """
    engine, now_unix_ns = context.engine, context.now_unix_ns
    version = now_unix_ns // (EVERY_S * SECOND_NS)
    running = background(engine).start(_SUBJECT, version, lambda: track_record(engine, now_unix_ns))
    if running is not None and not context.view.live:
        running.result()
        _draw(context, place)


def _draw(context: Context, place: Any) -> None:
    found: TrackRecord | None = background(context.engine).newest(_SUBJECT)
    if found is not None:
        place.html(f"<p class='note'>{found.sentence}</p>")
