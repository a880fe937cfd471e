"""A notice on the Overview page: replicas with running requests that take no step."""

from collections.abc import Sequence
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from store.replicas.hung_replicas import Hung, progress
from ui.kit import wording

MOST: Final = 5
"""Replicas that the notice names, at most; it counts the others."""


def show(engine: Engine, now_unix_ns: int) -> None:
    """Show the notice if a replica hangs now, for any selected range."""
    hung = progress(engine, now_unix_ns).hung
    if hung:
        st.html(f"<p class='headline answer hurt'>{sentence(hung)}</p>")


def sentence(hung: Sequence[Hung]) -> str:
    """Return the text of the notice, as HTML in which text from outside is escaped."""
    said = [
        f"Replica {wording.for_html(each.replica)} has"
        f" <b>{wording.counted(each.in_flight, 'request')}</b> running and has made no step for"
        f" <b>{wording.span(each.last_step_age_s)}</b>."
        for each in hung[:MOST]
    ]
    if len(hung) > MOST:
        said.append(f"Other replicas that hang: {len(hung) - MOST}.")
    said.append(
        "SLOs count these requests as bad once they exceed a latency threshold, the others when"
        " they end."
    )
    return " ".join(said)
