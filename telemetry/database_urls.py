"""The URLs of the database and of the database of the state, from the environment."""

import os
from collections.abc import Mapping
from typing import Final

ENVIRONMENT_KEY: Final = "TAILSPAN_DATABASE_URL"
STATE_ENVIRONMENT_KEY: Final = "TAILSPAN_STATE_URL"
DEFAULT_URL: Final = "sqlite:///var/tailspan.db"
"""The default URL. The path is relative to the working directory."""


def default_url(environ: Mapping[str, str] = os.environ) -> str:
    """`TAILSPAN_DATABASE_URL`, or the default SQLite database."""
    return environ.get(ENVIRONMENT_KEY) or DEFAULT_URL


def default_state_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """`TAILSPAN_STATE_URL`, or None if the state has no separate database."""
    return environ.get(STATE_ENVIRONMENT_KEY) or None
