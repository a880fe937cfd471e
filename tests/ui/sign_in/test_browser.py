import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.sign_in_file import load_sign_in
from rig.ports import free_port

pytest.importorskip("authlib", reason="Authlib is not installed: the extra sign-in")

from tests.ui.reader import STILL
from tests.ui.sign_in import provider as providers
from ui.frame.pages import PAGES

TENANTS = {"acme": "acme", "blue": "blaukraut", "corp": "corpulent", "delta": "deltoid"}
"""Names of the tenants that occur nowhere else in a page."""

WHOLE = """() => {
    const found = [];
    const walk = root => {
        for (const each of root.querySelectorAll("*")) {
            for (const attribute of each.attributes) found.push(attribute.value);
            for (const node of each.childNodes) if (node.nodeType === 3) found.push(node.data);
            if (each.shadowRoot) walk(each.shadowRoot);
        }
    };
    walk(document);
    return found.join("\\n");
}"""
"""Returns all texts and attributes of a page, also those in shadow roots."""

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture
def provider() -> Iterator[providers.Provider]:
    with providers.running() as running:
        yield running


@pytest.fixture
def guarded(
    explorer: Callable[..., str],
    database: Callable[..., str],
    fleet: Any,
    provider: providers.Provider,
    tmp_path: Path,
) -> Callable[..., str]:
    """Return a function that starts an explorer for @example.org users, under a base path."""

    def start(**more: Any) -> str:
        port = free_port()
        (tmp_path / "client-secret").write_text(providers.CLIENT_SECRET)
        file = tmp_path / "sign-in.yaml"
        file.write_text(
            f"issuer: {provider.issuer}\n"
            f"client_id: {providers.CLIENT}\n"
            "client_secret_file: client-secret\n"
            f"url: http://127.0.0.1:{port}/ops/tail\n"
            "allow: ['@example.org']\n"
            "session: 1h\n"
        )
        asked = load_sign_in(file, {})
        requests, samples = fleet(300, time.time_ns() - 290 * 10**9, 280)
        url = database(
            [replace(each, tenant=TENANTS[each.tenant or "acme"]) for each in requests], samples
        )
        return explorer(url, port=port, base_path=asked.base_path, sign_in=(file, asked), **more)

    return start


def test_a_signed_in_reader_sees_the_linked_page_and_can_sign_out(
    guarded: Callable[[], str],
    provider: providers.Provider,
    tab: Callable[..., Any],
    tmp_path: Path,
) -> None:
    address = guarded()
    page = tab(viewport={"width": 400, "height": 900})
    page.goto(f"{address}/?page=requests&last=5m&tenant=acme")
    page.get_by_role("heading", name="Sign in to Tailspan").wait_for()
    assert page.locator("a[data-key], .js-plotly-plot, .st-key-pages").count() == 0
    page.get_by_role("button", name="Sign in").click()
    page.locator("a[data-key]").first.wait_for()
    page.wait_for_url(f"{address}/requests?last=5m&tenant=acme")
    assert page.get_by_text("Filters · 1").count() == 1
    assert page.locator(".notice").count() == 0
    other = page.context.new_page()
    other.goto(f"{address}/?page=fleet&last=5m")
    other.get_by_role("button", name="Sign out jane@example.org").click()
    other.get_by_role("heading", name="Sign in to Tailspan").wait_for()
    assert other.url == f"{address}/?page=fleet&last=5m"
    other.goto(f"{address}/?page=fleet&last=5m")
    other.get_by_role("heading", name="Sign in to Tailspan").wait_for()
    assert page.locator("[data-testid=stException]").count() == 0
    log = (tmp_path / "explorer.log").read_text()
    assert providers.CLIENT_SECRET not in log
    assert not any(code in log for code in provider.codes)


@pytest.mark.parametrize(
    ("claims", "age_s", "expected"),
    [
        ({"email": "eve@example.com", "email_verified": True}, 0, "eve@example.com has no access"),
        ({"email": "eve@sub.example.org", "email_verified": True}, 0, "has no access"),
        ({"email": "eve@example.org"}, 0, "has not verified the address eve@example.org"),
        ({"email": "jane@example.org", "email_verified": True}, 3_601, "Your session has ended"),
    ],
)
def test_a_refused_reader_sees_the_reason_only(
    guarded: Callable[[], str],
    provider: providers.Provider,
    tab: Callable[..., Any],
    claims: dict[str, Any],
    age_s: int,
    expected: str,
) -> None:
    address = guarded()
    provider.who, provider.age_s = claims, age_s
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/?page=requests&last=5m")
    page.get_by_role("button", name="Sign in").click()
    page.locator(".headline", has_text=expected).wait_for()
    assert page.locator("a[data-key], .js-plotly-plot, .st-key-pages").count() == 0
    assert page.locator("button").count() == 1


def test_a_failed_sign_in_can_be_retried(
    guarded: Callable[[], str], provider: providers.Provider, tab: Callable[..., Any]
) -> None:
    address = guarded()
    provider.refuses = True
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/?page=fleet&last=5m")
    page.get_by_role("button", name="Sign in").click()
    page.locator(".notice", has_text="127.0.0.1 has not signed you in").wait_for()
    provider.refuses = False
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Fleet").wait_for()
    page.wait_for_url(f"{address}/fleet?last=5m")


def test_a_session_that_ends_while_a_page_is_open_closes_it(
    guarded: Callable[[], str], provider: providers.Provider, tab: Callable[..., Any]
) -> None:
    address = guarded()
    provider.age_s = 3_600 - 12
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/?page=fleet&last=5m")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Fleet").wait_for()
    page.locator(".headline", has_text="Your session has ended").wait_for()
    assert page.locator(".js-plotly-plot, .st-key-pages").count() == 0


def test_a_reader_with_a_role_sees_one_tenant_on_every_page(
    guarded: Callable[..., str],
    provider: providers.Provider,
    tab: Callable[..., Any],
    tmp_path: Path,
) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text(
        "audit: audit.jsonl\n"
        "roles:\n"
        "  acme: {claims: {groups: [acme]}, tenants: [acme], models: '*', costs: false}\n"
        "  sre: {claims: {groups: [sre]}, tenants: '*', models: '*', costs: true}\n"
    )
    address = guarded(roles=file)
    shown: dict[str, str] = {}
    for group in ("sre", "acme"):
        provider.who = {
            "email": f"{group}@example.org", "email_verified": True, "groups": ["all", group]
        }  # fmt: skip
        page = tab(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/?page=requests&last=5m")
        page.get_by_role("button", name="Sign in").click()
        page.locator("a[data-key]").first.wait_for()
        shown[group] = ""
        for each in PAGES:
            page.goto(f"{address}/{each.key}?last=5m")
            page.locator(".headline, .notice").first.wait_for()
            if each.key == "requests":
                page.locator("a[data-key]").first.wait_for()
            page.wait_for_function(STILL)
            shown[group] += page.evaluate(WHOLE)
            assert page.locator("[data-testid=stException]").count() == 0, each.key
    others = {*TENANTS.values()} - {"acme"}
    assert [name for name in others if name in shown["sre"]]
    assert [name for name in TENANTS.values() if name in shown["acme"]] == ["acme"]
    assert "your role does not allow costs" in shown["acme"]
    accepted = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {"sre@example.org", "acme@example.org"} <= {each["who"] for each in accepted}
