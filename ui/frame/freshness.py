"""How fresh the data is that a page shows, and whether it is real."""

from datetime import tzinfo

import streamlit as st

from analysis.staleness import silence_s
from ui.frame.view import View
from ui.kit import wording

DAY_S = 86_400


def show(
    view: View,
    newest_unix_ns: int | None,
    to_unix_ns: int,
    simulated: bool,
    now_unix_ns: int,
    zone: tzinfo,
) -> None:
    """Data as of when, live or paused; that none comes any more is the page's headline. Over
    simulated data a band that never scrolls off."""
    band(simulated)
    silent = silent_for(view, newest_unix_ns, now_unix_ns)
    if silent is not None and newest_unix_ns is not None:
        st.html(headline(silent, newest_unix_ns, zone))
    state = "paused" if not view.live else "live" if silent is None else "stale"
    parts = [f"<span class='{state}'>{state}</span>"]
    if newest_unix_ns is not None:
        newest = min(newest_unix_ns, to_unix_ns)
        parts.append(f"data as of {wording.clock(newest, zone)}")
        if silent is not None:
            parts.append(f"no data for {wording.span(silent)}")
    st.html(f"<div class='freshness'>{' · '.join(parts)}</div>")


def silent_for(view: View, newest_unix_ns: int | None, now_unix_ns: int) -> float | None:
    """For how many seconds a live page has had no data; None where it has."""
    return silence_s(newest_unix_ns, now_unix_ns, now_unix_ns) if view.live else None


def headline(silent: float, newest_unix_ns: int, zone: tzinfo) -> str:
    """What a page without new data says first."""
    newest = wording.clock(newest_unix_ns, zone, date=silent > DAY_S)
    return (
        f"<p class='headline answer hurt' role='alert'><b>No data for {wording.span(silent)}.</b>"
        f" The newest is from <b>{newest}</b>. The servers have stopped, or what they send does"
        " not arrive; <code>tailspan doctor</code> looks at each connection. Everything below"
        " shows how it was then.</p>"
    )


def band(simulated: bool) -> None:
    """Over simulated data, in sight wherever the reader is."""
    if simulated:
        st.html(
            "<div class='band' role='status'>"
            "Simulated data: no real server stands behind these numbers</div>"
        )
