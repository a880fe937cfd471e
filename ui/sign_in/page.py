"""The page for a reader who has not signed in, without Streamlit."""

import time
from collections import OrderedDict
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Scope
from streamlit.auth_util import encode_provider_token
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
from streamlit.web.server.starlette.starlette_websocket import (
    _get_signed_cookie_with_chunks,
    _parse_decoded_user_cookie,
)

from analysis.access.audit_log import audit_log
from analysis.access.roles_file import roles_in_force
from analysis.sign_in_file import SignIn
from ui.frame.pages import PAGES
from ui.sign_in import gate
from ui.sign_in.gate import SignInVerdict, judge
from ui.sign_in.redirect import FAILED

_PAGES: Final = ("", "/", "/index.html", *(f"/{page.key}" for page in PAGES))
MAX_RECORDED: Final = 10_000
"""Maximum number of sign-ins to remember. A remembered sign-in is not written to the audit log
again."""
MAX_KEY: Final = 256
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
_STYLE: Final = (Path(__file__).with_name("page.css")).read_text()
_DEFAULT_PROVIDER: Final = "default"


class SignInPage:
    """Admit a reader who may see the pages. Send the sign-in page to any other reader.

    Implements `ui.serving.routes.Admission`.
    """

    def __init__(self, settings: SignIn) -> None:
        self._settings = settings
        self._audit = audit_log()
        self._recorded: OrderedDict[tuple[str, str, SignInVerdict], None] = OrderedDict()

    def __call__(self, scope: Scope, path: str) -> Response | None:
        """Return None if the reader is admitted, or else the response to send."""
        claims = _claims(Headers(scope=scope), self._settings)
        verdict = judge(claims, self._settings, time.time(), roles_in_force())
        self._record(claims, verdict)
        if verdict is SignInVerdict.ALLOWED:
            return None
        if path not in _PAGES:
            return PlainTextResponse("Sign in first\n", 401, _HEADERS)
        email = str(claims.get("email") or "you")
        failed = FAILED in parse_qs(scope["query_string"].decode("latin-1"))
        return HTMLResponse(_html(self._settings, verdict, email, failed=failed), 401, _HEADERS)

    def _record(self, claims: Mapping[str, Any], verdict: SignInVerdict) -> None:
        """Record each sign-in once. After a restart, record it again."""
        if (
            self._audit is None
            or not claims
            or verdict in (SignInVerdict.UNKNOWN, SignInVerdict.ENDED)
        ):
            return
        session = gate.name_of(claims)[:MAX_KEY], str(claims.get("iat"))[:MAX_KEY], verdict
        if session in self._recorded:
            self._recorded.move_to_end(session)
            return
        self._recorded[session] = None
        if len(self._recorded) > MAX_RECORDED:
            self._recorded.popitem(last=False)
        accepted = verdict is SignInVerdict.ALLOWED
        self._audit.sign_in(session[0], "accepted" if accepted else f"refused: {verdict}")


def _claims(headers: Headers, settings: SignIn) -> Mapping[str, Any]:
    cookies = cookie_parser(headers.get("cookie", ""))
    kept = _get_signed_cookie_with_chunks(cookies, USER_COOKIE_NAME)
    return _parse_decoded_user_cookie(kept, settings.url) if kept else {}


def _html(settings: SignIn, verdict: SignInVerdict, email: str, *, failed: bool) -> str:
    base = f"/{settings.base_path}" if settings.base_path else ""
    if verdict in gate.ANOTHER_USER:
        where, label, fields = f"{base}/auth/logout", "Sign in as another user", ""
    else:
        token = escape(encode_provider_token(_DEFAULT_PROVIDER))
        where, label = f"{base}/auth/login", "Sign in"
        fields = f"<input type='hidden' name='provider' value='{token}'>"
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>Tailspan</title><style>{_STYLE}</style><main><h1>Sign in to Tailspan</h1>"
        f"{gate.reason_html(settings, verdict, email, failed=failed)}"
        f"<form action='{escape(where)}'>{fields}<button>{label}</button></form>"
        "<p class='note'>You come back to the page that you asked for.</p></main></html>"
    )
