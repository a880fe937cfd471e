"""How fresh the data is that a page shows, and whether it is real."""

from datetime import tzinfo
from typing import Final

import streamlit as st

from ui import wording
from ui.view import SECOND_NS, View

STALE_S: Final = 30


def show(
    view: View,
    newest_unix_ns: int | None,
    to_unix_ns: int,
    simulated: bool,
    now_unix_ns: int,
    zone: tzinfo,
) -> None:
    """Data as of when, live or paused; over simulated data a band that never scrolls off."""
    band(simulated)
    state = "live" if view.live else "paused"
    parts = [f"<span class='{state}'>{state}</span>"]
    if newest_unix_ns is not None:
        newest = min(newest_unix_ns, to_unix_ns)
        parts.append(f"data as of {wording.clock(newest, zone)}")
        if view.live and now_unix_ns - newest > STALE_S * SECOND_NS:
            parts.append(f"nothing new for {wording.span((now_unix_ns - newest) / SECOND_NS)}")
    st.html(f"<div class='freshness'>{' · '.join(parts)}</div>")


def band(simulated: bool) -> None:
    """Over simulated data, in sight wherever the reader is."""
    if simulated:
        st.html(
            "<div class='band' role='status'>"
            "Simulated data: no real server stands behind these numbers</div>"
        )
