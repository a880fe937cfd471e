"""Check, before every page, who the reader is and whether the reader may see the page.

The OpenID provider's claims are in a cookie that Streamlit signs. They are checked whenever a page
is drawn, so that an ended session shows no new data.
"""

import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from enum import StrEnum
from functools import wraps
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from analysis.access.claims import ClaimError, access_of_person
from analysis.access.roles_file import Roles, roles_in_force
from analysis.sign_in_file import EVERYBODY, SignIn, in_force
from telemetry.access import Access
from telemetry.durations import render
from telemetry.store_errors import NotAllowed
from ui.kit import wording
from ui.kit.sections import paragraph

Body = Callable[[Engine, tzinfo], None]

EARLY_S: Final = 120
"""Maximum seconds by which the provider's clock may be ahead of this machine's clock."""


class SignInVerdict(StrEnum):
    """Whether a reader may see the pages. If not, the verdict is the reason."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    """Not signed in."""
    ENDED = "ended"
    REFUSED = "refused"
    UNVERIFIED = "unverified"
    NO_ROLE = "no role"
    """The claims give the reader no role."""
    MALFORMED = "malformed claims"


ANOTHER_USER: Final = frozenset(
    {
        SignInVerdict.REFUSED,
        SignInVerdict.UNVERIFIED,
        SignInVerdict.NO_ROLE,
        SignInVerdict.MALFORMED,
    }
)
"""The verdicts after which a signed-in reader needs a different account."""


def judge(
    claims: Mapping[str, Any], settings: SignIn, now_s: float, roles: Roles | None = None
) -> SignInVerdict:
    """Whether a reader may see the pages.

    Args:
        claims: the identity token's claims, with Streamlit's `is_logged_in`.
        now_s: the time in unix seconds.
        roles: None if each reader may see everything.
    """
    verdict = _judge(claims, settings, now_s)
    if verdict is not SignInVerdict.ALLOWED or roles is None:
        return verdict
    try:
        return SignInVerdict.NO_ROLE if _access(claims, settings, roles) is None else verdict
    except ClaimError:
        return SignInVerdict.MALFORMED


def readers_access() -> Access | None:
    """What the current reader may see, or None if the reader may see everything.

    Raises:
        NotAllowed: the reader has no role.
    """
    roles, settings = roles_in_force(), in_force()
    if roles is None:
        return None
    claims = claims_of_reader() if settings is not None else {}
    if settings is None or judge(claims, settings, time.time(), roles) is not SignInVerdict.ALLOWED:
        raise NotAllowed("you have no role that may see these pages")
    return _access(claims, settings, roles)


def _access(claims: Mapping[str, Any], settings: SignIn, roles: Roles) -> Access | None:
    return access_of_person(claims, roles, unverified=settings.trusts_unverified)


def claims_of_reader() -> Mapping[str, Any]:
    """The current reader's claims, which the cookie contains."""
    return st.user.to_dict()


def name_of(claims: Mapping[str, Any]) -> str:
    """A person's name for the audit log. It is the e-mail address, or else the subject."""
    name = claims.get("email") or claims.get("sub")
    return name if isinstance(name, str) else "unknown"


def readers_name() -> str:
    """The current reader's name for the audit log."""
    return "no sign-in" if in_force() is None else name_of(claims_of_reader())


def _judge(claims: Mapping[str, Any], settings: SignIn, now_s: float) -> SignInVerdict:
    if claims.get("is_logged_in") is not True:
        return SignInVerdict.UNKNOWN
    since_s = claims.get("iat")
    if isinstance(since_s, bool) or not isinstance(since_s, int | float):
        return SignInVerdict.ENDED
    if not -EARLY_S <= now_s - since_s < settings.session_s:
        return SignInVerdict.ENDED
    if EVERYBODY in settings.allow:
        return SignInVerdict.ALLOWED
    email = claims.get("email")
    # Reject addresses that are not ASCII. `lower` converts some letters to ASCII, which could give
    # the address of a different person.
    if not isinstance(email, str) or not email.isascii() or email.count("@") != 1:
        return SignInVerdict.REFUSED
    email = email.lower()
    if not {email, f"@{email.partition('@')[2]}"} & set(settings.allow):
        return SignInVerdict.REFUSED
    if claims.get("email_verified") is not True and not settings.trusts_unverified:
        return SignInVerdict.UNVERIFIED
    return SignInVerdict.ALLOWED


def passes() -> bool:
    """Whether the page may be shown. If not, show the sign-in button."""
    settings = in_force()
    if settings is None:
        return True
    claims = claims_of_reader()
    verdict = judge(claims, settings, time.time(), roles_in_force())
    if verdict is SignInVerdict.ALLOWED:
        return True
    _ask_to_sign_in(settings, verdict, str(claims.get("email") or "you"))
    return False


def kept(body: Body) -> Body:
    """Return a page body that checks the reader's session at each run."""
    settings = in_force()
    if settings is None:
        return body

    @wraps(body)
    def guarded(engine: Engine, zone: tzinfo) -> None:
        if (
            judge(claims_of_reader(), settings, time.time(), roles_in_force())
            is not SignInVerdict.ALLOWED
        ):
            st.rerun()
        body(engine, zone)

    return guarded


def sign_out_button() -> None:
    """Show the reader's name and a sign-out button if sign-in is on."""
    if in_force() is None:
        return
    name = str(claims_of_reader().get("email") or "you")
    who = wording.for_markdown(name, 60)
    st.button(f"Sign out {who}", key="sign_out", type="tertiary", on_click=st.logout)


def _ask_to_sign_in(settings: SignIn, verdict: SignInVerdict, email: str) -> None:
    st.title("Sign in to Tailspan", anchor=False)
    st.html(reason_html(settings, verdict, email, failed=False))
    if verdict in ANOTHER_USER:
        st.button("Sign in as another user", key="sign_out", on_click=st.logout)
    else:
        st.button("Sign in", key="sign_in", type="primary", on_click=st.login)
        paragraph("You come back to the page that you asked for.")


def reason_html(settings: SignIn, verdict: SignInVerdict, email: str, *, failed: bool) -> str:
    """Why a page is not shown, as HTML. `failed` means that the last sign-in failed."""
    provider, who = wording.for_html(settings.provider), wording.for_html(email, 80)
    headline = f"<p class='headline'>{_explanation(settings, verdict, provider, who)}</p>"
    if not failed or verdict is not SignInVerdict.UNKNOWN:
        return headline
    return (
        f"<p class='notice'>{provider} has not signed you in. Try again; if it happens again, the"
        f" reason is in the explorer’s log.</p>{headline}"
    )


def _explanation(settings: SignIn, verdict: SignInVerdict, provider: str, who: str) -> str:
    match verdict:
        case SignInVerdict.ENDED:
            return (
                f"<b>Your session has ended:</b> a session lasts {render(settings.session_s)}. The"
                " page keeps its settings."
            )
        case SignInVerdict.REFUSED:
            return (
                f"<b>{who} has no access.</b> The operator of Tailspan can allow an address or a "
                "domain: <code>allow</code> in its sign-in file."
            )
        case SignInVerdict.UNVERIFIED:
            return (
                f"<b>{provider} has not verified the address {who}.</b> Verify your address"
                f" there. If {provider} does not verify addresses, the operator of Tailspan can set"
                " <code>unverified_email: trust</code>."
            )
        case SignInVerdict.NO_ROLE:
            return (
                f"<b>{who} has no role.</b> {provider} sent no claim that grants a role. The"
                " operator of Tailspan can change the claims of a role in its roles file."
            )
        case SignInVerdict.MALFORMED:
            return (
                f"<b>The roles of {who} cannot be read.</b> A claim that gives a role must be a"
                f" text, or a list of texts. The administrator of {provider} can change what it"
                " sends."
            )
        case _:
            return f"Sign in with <b>{provider}</b> to see these pages."
