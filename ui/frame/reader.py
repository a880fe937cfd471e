"""Restrict the database to what the reader of a page may see."""

import time
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from analysis.access.visible_objectives import access_with_objectives
from analysis.database import cache_key, restricted_to
from telemetry.access import Access
from ui.frame.objectives import read_objectives
from ui.frame.read_cache import shared
from ui.sign_in import gate

MINUTE_S: Final = 60
MAX_ENGINES: Final = 64
"""Maximum number of restricted engines. All of them share the same connections."""


def readers_engine(engine: Engine) -> Engine:
    """The database, restricted to what the current reader may see.

    Raises:
        NotAllowed: the reader has no role.
        StoreUnavailable: the database does not respond.
    """
    access = gate.readers_access()
    if access is None or not access.limits:
        return engine
    objectives = read_objectives()

    def find() -> Access:
        return access_with_objectives(engine, access, objectives.parsed)

    # Find the access again each minute, because a request may have added a group.
    minute = int(time.time()) // MINUTE_S
    found = shared(engine, ("access", access.key, objectives.key, minute), find)
    return _restricted(cache_key(engine), found.key, engine, found)


@st.cache_resource(max_entries=MAX_ENGINES, show_spinner=False)
def _restricted(url: str, key: str, _engine: Engine, _access: Access) -> Engine:
    del url, key
    return restricted_to(_engine, _access)
