"""What this session shows: the view that the browser's address says, and the ways to another.

The address is the state. A reader's choice writes it, Back and Forward change it, and the page
follows; nothing else writes it, so that each entry of the browser's history is a choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Final, ParamSpec

import streamlit as st

from ui.frame import address
from ui.frame.pages import GROUPS, PAGES
from ui.frame.view import View

Given = ParamSpec("Given")

_VIEW: Final = "view"
_ADDRESS: Final = "address"
_NOTICES: Final = "notices"


def choose(show: Callable[[], None]) -> None:
    """Run the page that the address names.

    Args:
        show: draws the page of the current view.
    """
    pages = {
        page.key: st.Page(show, title=page.name, url_path=page.key, default=page is PAGES[0])
        for page in PAGES
    }
    chosen = st.navigation(list(pages.values()), position="hidden")
    key = chosen.url_path or PAGES[0].key
    parameters = st.query_params.to_dict()
    if key == PAGES[0].key and (other := address.destination(parameters)) != key:
        # A browser is redirected before it gets here (ui.serving.routes).
        parameters.pop("page", None)
        st.switch_page(pages[other], query_params=parameters)
    _follow(key, parameters)
    _links(pages)
    chosen.run()


def _follow(key: str, parameters: Mapping[str, str]) -> None:
    """Read the address, if the browser has changed it."""
    if st.session_state.get(_ADDRESS) != (key, parameters):
        view, notices = address.parse(parameters, key)
        st.session_state[_VIEW] = view
        st.session_state[_NOTICES] = notices
        st.session_state[_ADDRESS] = (key, parameters)


def _links(pages: Mapping[str, st.Page]) -> None:
    """The way from page to page, which keeps range and filters."""
    with st.container(key="pages", horizontal=True, gap="medium"):
        for group in GROUPS:
            with st.container(horizontal=True, gap="xxsmall", width="content"):
                for page in group:
                    there = replace(current(), page=page.key)
                    st.page_link(
                        pages[page.key],
                        label=page.name,
                        query_params=address.parameters(there),
                    )


def current() -> View:
    """Return the view of this session."""
    found: View = st.session_state[_VIEW]
    return found


def notices() -> list[str]:
    """Return what the address says that was not understood."""
    found: list[str] = st.session_state[_NOTICES]
    return found


def warn(notice: str) -> None:
    """Show a notice in place of those of the address."""
    st.session_state[_NOTICES] = [notice]


def change(view: View) -> None:
    """Take another view of the same page, and write it to the address."""
    st.session_state[_VIEW] = view
    st.session_state[_NOTICES] = []
    written = address.parameters(view)
    if st.query_params.to_dict() != written:
        st.query_params.from_dict(written)
    key, _ = st.session_state[_ADDRESS]
    st.session_state[_ADDRESS] = (key, written)


def resolve(view: View) -> None:
    """Take the view that the address stands for, and leave the address as it is."""
    st.session_state[_VIEW] = view


def choice(callback: Callable[Given, None]) -> Callable[Given, None]:
    """Decorate a widget's callback: it is called for a reader's choice alone.

    After Back, the browser sends the new address with the widgets' values of the page before. To
    Streamlit they look like choices.
    """

    @wraps(callback)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> None:
        _, parameters = st.session_state[_ADDRESS]
        if st.query_params.to_dict() == parameters:
            callback(*args, **kwargs)

    return called
