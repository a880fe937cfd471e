from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from alerts.secrets import Secret
from analysis.sign_in_file import SignIn
from server.explorer_launch import launch
from tests.ui.opening import Open, markup
from ui.sign_in.gate import SignInVerdict, judge
from ui.sign_in.redirect import COOKIE, ReturnToPage

NOW_S = 1_763_600_000.0
URL = "https://ops.example.org/tail"
JANE = {
    "is_logged_in": True,
    "iat": NOW_S - 60,
    "email": "jane@example.org",
    "email_verified": True,
}


def asked(*allow: str, **about: Any) -> SignIn:
    known: dict[str, Any] = {"session_s": 3_600, "trusts_unverified": False, **about}
    allow = allow or ("@example.org", "eve@partner.example")
    return SignIn("https://login.example.org", "id", Secret("s"), URL, allow, **known)


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ({}, SignInVerdict.ALLOWED),
        ({"email": "JANE@EXAMPLE.ORG"}, SignInVerdict.ALLOWED),
        ({"email": "eve@partner.example"}, SignInVerdict.ALLOWED),
        ({"email": "jane@partner.example"}, SignInVerdict.REFUSED),
        ({"email": "jane@sub.example.org"}, SignInVerdict.REFUSED),
        ({"email": "jane@example.org@evil.example"}, SignInVerdict.REFUSED),
        ({"email": "evil.example@@example.org"}, SignInVerdict.REFUSED),
        ({"email": "jane@example.org\u212a"}, SignInVerdict.REFUSED),
        ({"email": None}, SignInVerdict.REFUSED),
        ({"email": ["jane@example.org"]}, SignInVerdict.REFUSED),
        ({"email_verified": None}, SignInVerdict.UNVERIFIED),
        ({"email_verified": "true"}, SignInVerdict.UNVERIFIED),
        ({"iat": NOW_S - 3_600}, SignInVerdict.ENDED),
        ({"iat": NOW_S + 121}, SignInVerdict.ENDED),
        ({"iat": None}, SignInVerdict.ENDED),
        ({"iat": True}, SignInVerdict.ENDED),
        ({"is_logged_in": False}, SignInVerdict.UNKNOWN),
        ({"is_logged_in": "true"}, SignInVerdict.UNKNOWN),
    ],
)
def test_only_allowed_addresses_are_admitted(
    claims: dict[str, Any], verdict: SignInVerdict
) -> None:
    assert judge({**JANE, **claims}, asked(), NOW_S) is verdict


def test_anyone_signed_in_may_look_without_an_address() -> None:
    anyone = asked("*")
    assert judge({"is_logged_in": True, "iat": NOW_S}, anyone, NOW_S) is SignInVerdict.ALLOWED
    assert judge({"is_logged_in": True, "iat": 0}, anyone, NOW_S) is SignInVerdict.ENDED
    assert judge({}, anyone, NOW_S) is SignInVerdict.UNKNOWN


def test_a_provider_that_verifies_no_address_can_be_trusted() -> None:
    claims = {**JANE, "email_verified": None}
    assert judge(claims, asked(trusts_unverified=True), NOW_S) is SignInVerdict.ALLOWED


def test_without_a_sign_in_no_data_is_shown(
    page: Open, database: Any, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.sign_in.gate.in_force", asked)
    shown = page(database(*fleet(50, int(NOW_S) * 10**9, 60)), page="requests")
    assert "login.example.org" in markup(shown)
    assert "acme" not in markup(shown)
    assert [each.label for each in shown.button] == ["Sign in"]
    assert not shown.exception


def answers(status: int, *cookies: str, to: str = URL) -> TestClient:
    async def answer(_: Request) -> Response:
        if status == 302:
            response: Response = RedirectResponse(to, 302)
        else:
            response = PlainTextResponse("Authentication error", status)
        for cookie in cookies:
            response.headers.append("set-cookie", cookie)
        return response

    app = Starlette(routes=[Route("/{path:path}", answer)])
    return TestClient(
        ReturnToPage(app, URL), base_url="https://ops.example.org", follow_redirects=False
    )


LEFT = {"referer": f"{URL}/?page=root-cause&tenant=a%20b&sign_in=failed"}
KNOWN = "_streamlit_user=x; Path=/tail; Max-Age=9"


def test_sign_in_returns_to_the_query_of_the_page() -> None:
    client = answers(302, KNOWN)
    kept = client.get("/tail/auth/login", headers=LEFT)
    assert all("Secure" in each for each in kept.headers.get_list("set-cookie"))
    back = client.get("/tail/oauth2callback?code=1&state=2")
    assert back.headers["location"] == f"{URL}/?page=root-cause&tenant=a%20b"
    assert client.get("/tail/oauth2callback").headers["location"] == f"{URL}/"


def test_signing_out_keeps_the_address() -> None:
    out = answers(302, to="/tail/").get("/tail/auth/logout", headers=LEFT)
    assert out.headers["location"] == f"{URL}/?page=root-cause&tenant=a%20b"
    provider = "https://login.example.org/logout"
    out = answers(302, to=provider).get("/tail/auth/logout", headers=LEFT)
    assert out.headers["location"] == provider


@pytest.mark.parametrize(
    "referer",
    [
        "https://evil.example/?page=root-cause",
        f"{URL}.evil.example/?page=root-cause",
        "",
        "https://[/?page=root-cause",
    ],
)
def test_sign_in_returns_only_to_tailspans_pages(referer: str) -> None:
    client = answers(302, KNOWN)
    client.get("/tail/auth/login", headers={"referer": referer})
    assert client.get("/tail/oauth2callback?code=1").headers["location"] == f"{URL}/"


def test_a_foreign_cookie_cannot_redirect_to_another_site() -> None:
    client = answers(302, KNOWN)
    client.cookies.set(COOKIE, "%0d%0aX: y//evil.example/?a=b", path="/tail")
    location = client.get("/tail/oauth2callback?code=1").headers["location"]
    assert location.startswith(f"{URL}/?")
    assert "\n" not in location


def test_a_try_that_failed_is_marked() -> None:
    away = answers(400).get("/tail/auth/login", headers=LEFT)
    assert (away.status_code, away.text) == (302, "")
    assert away.headers["location"] == f"{URL}/?page=root-cause&tenant=a%20b&sign_in=failed"
    gone = answers(302, '_streamlit_user=""; Max-Age=0; Path=/tail')
    back = gone.get("/tail/oauth2callback?error=access_denied")
    assert back.headers["location"] == f"{URL}/?sign_in=failed"


def test_all_else_passes() -> None:
    assert answers(400).get("/tail/_stcore/health").text == "Authentication error"


def test_the_process_gets_the_file_and_no_secret(tmp_path: Path) -> None:
    started = launch(base_path="tail", sign_in=(tmp_path / "sign-in.yaml", asked()))
    assert started.environment == {"TAILSPAN_SIGN_IN": str(tmp_path / "sign-in.yaml")}
    assert not any("sign-in" in word for word in started.command)
