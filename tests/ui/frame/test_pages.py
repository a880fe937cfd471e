"""What pages there are."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.opening import APP
from ui.frame.app import module_of
from ui.frame.pages import BY_KEY, FIRST, PAGES, Page
from ui.frame.view import RANGES_S


def test_every_page_has_a_body_and_a_name_of_its_own() -> None:
    """A page that is offered opens; two are never taken for each other."""
    assert all(callable(getattr(module_of(page), "show", None)) for page in PAGES)
    for told in ("key", "name"):
        assert len({getattr(page, told) for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.key)
def test_every_page_knows_how_often_to_look(page: Page) -> None:
    """For each range that is offered; a longer one is never looked at more often."""
    assert list(page.refresh_s) == list(RANGES_S)
    assert list(page.refresh_s.values()) == sorted(page.refresh_s.values())


def test_a_page_that_is_not_there_says_which_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was asked for, what there is, and what is shown instead."""
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", f"sqlite:///{tmp_path / 'none.db'}")
    test = AppTest.from_file(str(APP), default_timeout=60)
    test.query_params["page"] = "<b>wy</b>"
    test.run()
    assert not test.exception
    assert test.title[0].value == BY_KEY[FIRST].name
    said = "\n".join(element.proto.body for element in test.get("html"))
    assert "page is “&lt;b&gt;wy&lt;/b&gt;”; it takes" in said
    assert all(key in said for key in BY_KEY)
