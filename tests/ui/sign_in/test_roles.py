import json
from pathlib import Path
from typing import Any

import pytest

from analysis.access.audit_log import AuditLog
from analysis.access.roles_file import Roles, load_roles
from telemetry.store_errors import NotAllowed
from tests.ui.sign_in.test_gate import JANE, NOW_S, asked
from ui.serving.process import application
from ui.sign_in import gate, page
from ui.sign_in.gate import SignInVerdict, judge
from ui.sign_in.page import SignInPage

FILE = """
roles:
  acme: {claims: {groups: [acme]}, tenants: [acme], models: "*", costs: false}
"""
SCOPE: dict[str, Any] = {"type": "http", "headers": [], "query_string": b""}


@pytest.fixture
def roles(tmp_path: Path) -> Roles:
    (tmp_path / "roles.yaml").write_text(FILE)
    return load_roles(tmp_path / "roles.yaml")


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        (["acme"], SignInVerdict.ALLOWED),
        ("acme", SignInVerdict.ALLOWED),
        (["other"], SignInVerdict.NO_ROLE),
        (None, SignInVerdict.NO_ROLE),
        ([["acme"]], SignInVerdict.MALFORMED),
        ({"acme": True}, SignInVerdict.MALFORMED),
    ],
)
def test_only_people_with_a_role_are_admitted(
    roles: Roles, groups: Any, verdict: SignInVerdict
) -> None:
    claims = {**JANE, "groups": groups}
    assert judge(claims, asked(), NOW_S, roles) is verdict
    assert judge(claims, asked(), NOW_S) is SignInVerdict.ALLOWED
    assert judge({**claims, "iat": 0}, asked(), NOW_S, roles) is SignInVerdict.ENDED
    assert (
        judge({**claims, "email": "x@evil.example"}, asked(), NOW_S, roles) is SignInVerdict.REFUSED
    )


def test_each_sign_in_is_recorded_once(
    roles: Roles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: dict[str, Any] = {}
    log = tmp_path / "audit.jsonl"
    monkeypatch.setattr(page, "audit_log", lambda: AuditLog(log))
    monkeypatch.setattr(page, "roles_in_force", lambda: roles)
    monkeypatch.setattr(page, "_claims", lambda *_: claims)
    monkeypatch.setattr("ui.sign_in.page.time.time", lambda: NOW_S)
    admission = SignInPage(asked())
    claims.update(JANE, groups=["acme"])
    assert admission(SCOPE, "/requests") is None
    assert admission(SCOPE, "/_stcore/stream") is None
    claims.update(groups=["other"], email="joe@example.org")
    refused = admission(SCOPE, "/")
    assert refused is not None
    assert b"has no role" in refused.body
    claims.update(iat=0)
    admission(SCOPE, "/")
    claims.clear()
    admission(SCOPE, "/")
    found = [json.loads(each) for each in log.read_text().splitlines()]
    assert [(each["who"], each["result"]) for each in found] == [
        ("jane@example.org", "accepted"),
        ("joe@example.org", "refused: no role"),
    ]


def test_roles_need_a_sign_in(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.serving.process.roles_in_force", lambda: roles)
    with pytest.raises(ValueError, match="--sign-in"):
        application({"server.address": "127.0.0.1"}, None, {})
    monkeypatch.setattr(gate, "roles_in_force", lambda: roles)
    monkeypatch.setattr(gate, "in_force", lambda: None)
    with pytest.raises(NotAllowed):
        gate.readers_access()
