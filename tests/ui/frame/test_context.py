from collections.abc import Hashable
from dataclasses import replace
from datetime import UTC

import pytest
from sqlalchemy import create_engine

from ui.frame import context as module
from ui.frame.context import SETTLED_S, Context
from ui.frame.objectives import Objectives
from ui.frame.pages import PAGES
from ui.frame.view import View

S = 10**9
END_S = 1_763_634_000


def test_a_range_is_read_again_when_its_data_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bill that was computed before the end of its last minute must be computed again."""
    keys: list[tuple[Hashable, ...]] = []
    monkeypatch.setattr(
        module, "shared", lambda _engine, key, _read, *, large: keys.append((*key, large))
    )
    view = View().between((END_S - 900) * S, END_S * S)
    context = Context(create_engine("sqlite://"), PAGES[0], view, END_S * S, UTC, Objectives({}))
    for later_s in (5, SETTLED_S - 1, SETTLED_S + 1, 10 * SETTLED_S):
        replace(context, now_unix_ns=(END_S + later_s) * S).shared(lambda: None)
    assert keys[0] == keys[1] != keys[2] == keys[3]
