from datetime import UTC
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st

from ui.frame import app


def test_a_folder_of_time_zones_is_no_time_zone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In Python 3.11, zoneinfo raises an OSError if the package tzdata is installed."""
    zones = tmp_path / "tzdata" / "zoneinfo"
    (zones / "America").mkdir(parents=True)
    for each in (zones.parent, zones):
        (each / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(st, "context", SimpleNamespace(timezone="America"))
    assert app._zone() is UTC
