"""The path of the state file, which stores how much of the budget was spent today."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def default_state_file(plan: Path, environment: Mapping[str, str]) -> Path:
    """The default path of the state file for a file of probes. Source: XDG Base Directory
    Specification."""
    given = environment.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    digest = hashlib.sha256(str(plan.resolve()).encode()).hexdigest()[:16]
    return base / "tailspan" / f"probe-{digest}.json"
