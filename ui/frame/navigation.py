"""The session's view in the browser's address, and the links to other pages.

Only the reader's choices, Back and Forward change the address. Each choice is one entry of the
browser's history.
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
_REPLACED: Final = "replaced_addresses"
"""Session key of replaced addresses, until the browser sends the newest address."""
_NOTICES: Final = "notices"
_PAGES: Final = "pages"
"""Session key of Streamlit's page objects."""


def choose(show: Callable[[], None]) -> None:
    """Run the page that the address selects. `show` draws the page."""
    pages = {
        page.key: st.Page(show, title=page.name, url_path=page.key, default=page is PAGES[0])
        for page in PAGES
    }
    chosen = st.navigation(list(pages.values()), position="hidden")
    key = chosen.url_path or PAGES[0].key
    parameters = st.query_params.to_dict()
    if key == PAGES[0].key and (other := address.destination(parameters)) != key:
        # The query names a page. A new page load does not reach this line, because
        # `ui.serving.routes` redirects it.
        parameters.pop("page", None)
        st.switch_page(pages[other], query_params=parameters)
    st.session_state[_PAGES] = pages
    _follow(key, parameters)
    _links(pages)
    chosen.run()


def _follow(key: str, parameters: Mapping[str, str]) -> None:
    if st.session_state.get(_ADDRESS) != (key, parameters):
        view, notices = address.parse(parameters, key)
        st.session_state[_VIEW] = view
        st.session_state[_NOTICES] = notices
        st.session_state[_ADDRESS] = (key, parameters)
        st.session_state[_REPLACED] = []


def _links(pages: Mapping[str, st.Page]) -> None:
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
    """The view of this session."""
    found: View = st.session_state[_VIEW]
    return found


def notices() -> list[str]:
    """A notice for each part of the address that cannot be parsed."""
    found: list[str] = st.session_state[_NOTICES]
    return found


def warn(notice: str) -> None:
    """Show this notice, and remove the notices about the address."""
    st.session_state[_NOTICES] = [notice]


def change(view: View) -> None:
    """Change the view within the page, and write the view to the address.

    The page of an incident may have been drawn at the path of another page (`resolve`). The path
    then changes too.
    """
    written = address.parameters(view)
    key, before = st.session_state[_ADDRESS]
    if view.page != key:
        st.switch_page(st.session_state[_PAGES][view.page], query_params=written)
    st.session_state[_VIEW] = view
    st.session_state[_NOTICES] = []
    if not st.query_params.to_dict() == before == written:
        st.session_state[_REPLACED].append(before)
        st.query_params.from_dict(written)
    st.session_state[_ADDRESS] = (key, written)


def go(view: View) -> None:
    """Switch to a view. The browser's history gets one new entry."""
    if view.page == current().page:
        change(view)
        st.rerun()
    st.switch_page(st.session_state[_PAGES][view.page], query_params=address.parameters(view))


def resolve(view: View) -> None:
    """Draw the page again with an incident's view, without changing the address.

    The links to other pages were drawn before, without the incident's range.
    """
    st.session_state[_VIEW] = view
    st.rerun()


def choice(callback: Callable[Given, None]) -> Callable[Given, None]:
    """Decorate a widget's callback so that it runs only after a reader's change.

    After Back, the browser sends the new address with the widgets' old values, and Streamlit calls
    their callbacks. A callback runs only if the browser sent the session's newest address, or an
    address in `_REPLACED`. The latter occurs if the reader makes a second choice before the browser
    has received the address of the first.
    """

    @wraps(callback)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> None:
        _, parameters = st.session_state[_ADDRESS]
        sent = st.query_params.to_dict()
        if sent == parameters:
            st.session_state[_REPLACED] = []
        elif sent not in st.session_state[_REPLACED]:
            return
        callback(*args, **kwargs)
        _, newest = st.session_state[_ADDRESS]
        if st.query_params.to_dict() != newest:  # the callback changed nothing
            st.query_params.from_dict(newest)

    return called
