"""Show the progress while the simulated fleet's past data arrives."""

import os

import streamlit as st
from sqlalchemy import Engine

from alerts.objectives import Goodput
from analysis.first_minute import BackfillProgress, FirstMinute, backfill_progress
from ui.frame import freshness
from ui.frame.objectives import Objectives
from ui.kit import wording


def current(engine: Engine, objectives: Objectives, now_unix_ns: int) -> BackfillProgress | None:
    """The part of the simulated past that has arrived, or None if no past data is arriving."""
    # Omit objectives on probes, because the simulator sends no probes.
    names = [each.name for each in objectives.counted if isinstance(each.indicator, Goodput)]
    question = FirstMinute.of(os.environ, names)
    return None if question is None else backfill_progress(engine, question, now_unix_ns)


def show(found: BackfillProgress) -> None:
    """Show the progress in place of the page."""
    freshness.band(simulated=True)
    past = wording.span(found.past_s)
    st.html(
        "<p class='headline answer unknown' role='status'><b>The simulated fleet is starting.</b>"
        f" Its last {past}, which include an incident, are being stored. This page then appears "
        "automatically.</p>"
    )
    st.progress(found.arrived_ratio, f"{wording.percent(found.arrived_ratio)} of {past} stored")
