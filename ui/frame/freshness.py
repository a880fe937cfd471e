"""Show the age of a page's data, and whether it is simulated."""

import html
from datetime import tzinfo

import streamlit as st

from ui.frame.address import link
from ui.frame.context import Context
from ui.kit import wording

DAY_S = 86_400


def show(context: Context, newest_unix_ns: int | None, simulated: bool) -> None:
    """Show whether data is missing, late or simulated."""
    band(simulated)
    silent = context.silence_s(newest_unix_ns)
    if silent is not None and newest_unix_ns is not None:
        st.html(headline(silent, newest_unix_ns, context.zone))
    if newest_unix_ns is not None and context.catching_up(newest_unix_ns):
        until = wording.clock(newest_unix_ns, context.zone)
        st.html(
            "<p class='headline answer unknown' role='status'><b>Earlier data is arriving:</b> up"
            f" to <b>{until}</b> so far. The page updates automatically.</p>"
        )
    state = "paused" if not context.view.live else "live" if silent is None else "stale"
    drawn = _drawn(context) if state == "live" else ""
    parts = [f"<span class='{state}'{drawn}>{state}</span>"]
    if newest_unix_ns is not None:
        newest = min(newest_unix_ns, context.window.to_unix_ns)
        at = wording.clock_or_date(newest, context.zone, context.now_unix_ns)
        parts.append(f"data as of {at}")
        if silent is not None:
            parts.append(f"no data for {wording.span(silent)}")
    window = context.window
    parts.append(wording.zone_name(context.zone, window.from_unix_ns, window.to_unix_ns))
    frozen = context.view
    if frozen.last is not None:
        frozen = frozen.paused_at(context.window.to_unix_ns)
    parts.append(
        f"<button type='button' class='copy' data-link='{html.escape(link(frozen))}'"
        " title='The link always shows this range, even when opened later'>Copy link</button>"
    )
    st.html(f"<div class='freshness'>{' · '.join(parts)}</div>")


def _drawn(context: Context) -> str:
    assert context.view.last is not None
    every = context.page.refresh_s[context.view.last]
    return f" data-drawn='{context.now_unix_ns}' data-every='{every}'"


def headline(silent: float, newest_unix_ns: int, zone: tzinfo) -> str:
    """The headline of a page that receives no new data."""
    newest = wording.clock(newest_unix_ns, zone, date=silent > DAY_S)
    return (
        f"<p class='headline answer bad' role='alert'><b>No data for {wording.span(silent)}.</b>"
        f" The newest data is from <b>{newest}</b>, and so is everything below."
        " <code>tailspan doctor</code> checks each connection.</p>"
    )


def band(simulated: bool) -> None:
    """Show a band if data is simulated. The band stays visible while the reader scrolls."""
    if simulated:
        st.html(
            "<div class='band' role='status'>"
            "Simulated data: these numbers do not come from a real server</div>"
        )
