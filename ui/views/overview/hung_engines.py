"""A notice on the Overview page if an engine has running requests but takes no step."""

from collections.abc import Sequence
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from analysis.replica_checks import replica_progress
from telemetry.hung_replicas import HungReplica
from ui.kit import wording

MAX_LISTED: Final = 5


def show(engine: Engine, now_unix_ns: int) -> None:
    """Show the notice if a replica hangs now, whatever range is selected."""
    hung = replica_progress(engine, now_unix_ns).hung
    if hung:
        st.html(f"<p class='headline answer bad'>{sentence(hung)}</p>")


def sentence(hung: Sequence[HungReplica]) -> str:
    """The notice as HTML. External text is escaped."""
    sentences = [
        f"Replica {wording.for_html(each.replica)} has"
        f" <b>{wording.counted(each.in_flight, 'request')}</b> running, but {each.no_step_text}"
        f" for <b>{wording.span(each.last_step_age_s)}</b>."
        for each in hung[:MAX_LISTED]
    ]
    if len(hung) > MAX_LISTED:
        sentences.append(f"Other replicas that hang: {len(hung) - MAX_LISTED}.")
    sentences.append(
        "SLOs count a running request as bad as soon as it exceeds a latency threshold."
        " Other requests count when they end."
    )
    return " ".join(sentences)
