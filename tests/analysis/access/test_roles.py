import fcntl
import json
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alerts.errors import DocumentError
from analysis.access.audit_log import AuditLog, Interface, check_writable
from analysis.access.claims import ClaimError, access_of_person
from analysis.access.roles_file import Roles, load_roles
from telemetry.access import Access, Grant

FILE = """
audit: log/audit.jsonl
roles:
  sre:
    {claims: {groups: [sre, on-call], department: [ops]}, tenants: "*", models: "*", costs: true}
  acme:
    claims: {groups: [acme], email: [jane@acme.example]}
    tenants: [acme]
    models: "*"
    costs: false
  gate: {tenants: [acme, globex], models: [m1], costs: true}
"""
ACME = Grant(frozenset({"acme"}), None, costs=False)


def _load(folder: Path, text: str = FILE) -> Roles:
    path = folder / "roles.yaml"
    path.write_text(text)
    return load_roles(path)


def test_a_roles_file_is_read(tmp_path: Path) -> None:
    roles = _load(tmp_path)
    assert [each.name for each in roles.roles] == ["sre", "acme", "gate"]
    assert roles.by_name["gate"].grant == Grant(frozenset({"acme", "globex"}), frozenset({"m1"}))
    assert roles.audit == tmp_path / "log/audit.jsonl"
    assert _load(tmp_path, FILE.replace("audit: log/audit.jsonl", "")).audit is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 documents"),
        ("roles: {}", "roles: must be a mapping"),
        ("roles: [sre]", "roles: must be a mapping"),
        ("roles: {sre: {tenants: '*', models: '*'}}", "costs: is missing"),
        ("roles: {sre: {models: '*', costs: true}}", "tenants: is missing"),
        ("roles: {sre: {tenants: acme, models: '*', costs: true}}", "'*', or a sequence"),
        ("roles: {sre: {tenants: [], models: '*', costs: true}}", "a sequence of names"),
        ("roles: {sre: {tenants: ['*'], models: '*', costs: true}}", "cannot be an item"),
        ("roles: {sre: {tenants: ['(other tenants)'], models: '*', costs: true}}", "an item"),
        ("roles: {sre: {tenants: [_other], models: '*', costs: true}}", "an item"),
        ("roles: {sre: {tenants: [''], models: '*', costs: true}}", "empty text"),
        ("roles: {sre: {tenants: '*', models: '*', costs: maybe}}", "allowed: true, false"),
        ("roles: {sre: {tenants: '*', models: '*', costs: true, route: x}}", "no such key"),
        ("roles: {'a:b': {tenants: '*', models: '*', costs: true}}", "allowed names"),
        ("roles: {sre: {claims: [x], tenants: '*', models: '*', costs: true}}", "a mapping of"),
        ("roles: {sre: {claims: {groups: x}, tenants: '*', models: '*', costs: true}}", "sequence"),
        (FILE + "extra: 1", "no such key"),
        ("roles: &a {sre: *a}", "anchors"),
    ],
)
def test_a_wrong_roles_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DocumentError, match=words.replace("*", r"\*").replace("[", r"\[")):
        _load(tmp_path, text)


@pytest.mark.parametrize(
    ("claims", "grants"),
    [
        ({"groups": ["sre"]}, [Grant()]),
        ({"groups": "on-call"}, [Grant()]),
        ({"department": ["ops", "x"]}, [Grant()]),
        ({"groups": ["acme"]}, [ACME]),
        ({"groups": ["acme", "sre"]}, [Grant()]),
        ({"groups": ["SRE", "sre "]}, None),
        ({"groups": []}, None),
        ({}, None),
        ({"email": "jane@acme.example", "email_verified": True}, [ACME]),
        ({"email": "jane@acme.example", "email_verified": "true"}, None),
        ({"email": "jane@acme.example"}, None),
    ],
)
def test_claims_give_roles(
    tmp_path: Path, claims: Mapping[str, Any], grants: list[Grant] | None
) -> None:
    found = access_of_person(claims, _load(tmp_path), unverified=False)
    assert found == (None if grants is None else Access.of(grants))


@pytest.mark.parametrize(
    "groups", [7, {"sre": 1}, [["sre"]], ["sre", None], True, ["x" * 2_000], ["x"] * 1_001]
)
def test_a_malformed_claim_is_an_error(tmp_path: Path, groups: Any) -> None:
    with pytest.raises(ClaimError, match="the claim groups"):
        access_of_person({"groups": groups}, _load(tmp_path), unverified=False)


def test_the_audit_log_escapes_texts_and_limits_its_size(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    check_writable(path)
    log = AuditLog(path, max_bytes=2_000)
    log.sign_in('eve"\n{"event": "sign_in"}\x1b[2J\u2028', "accepted")
    (line,) = path.read_text(encoding="ascii").splitlines()
    assert json.loads(line)["who"].startswith('eve"\n')
    for number in range(100):
        log.read(Interface.API, "x" * 10_000, f"request-{number}", found=True)
    kept = [tmp_path / "audit.jsonl.1", path]
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in kept}
    lines = [json.loads(each) for file in kept for each in file.read_text().splitlines()]
    assert lines[-1]["request"] == "request-99"
    assert max(len(each["who"]) for each in lines) == 256
    assert all(each.stat().st_size <= 2_000 for each in kept)
    assert {each.stat().st_mode & 0o777 for each in kept} == {0o600}


def test_an_audit_log_that_cannot_be_written_does_not_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "gone" / "audit.jsonl")
    log.sign_in("jane", "accepted")
    log.sign_in("jane", "accepted")
    assert caplog.text.count("the audit log cannot be written") == 1
    with pytest.raises(OSError, match="No such file"):
        check_writable(tmp_path / "gone" / "audit.jsonl")
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    AuditLog(tmp_path / "link").sign_in("jane", "accepted")
    assert not target.exists()


@pytest.mark.parametrize("max_bytes", [1_000, 100])
def test_a_log_that_another_process_renames_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """The other process has renamed the full log, and not yet opened the new one."""
    path, full = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log = AuditLog(path, max_bytes)
    log.sign_in("jane", "accepted")
    written = path.read_bytes()
    lock = fcntl.flock

    def rename_first(file: int, operation: int) -> None:
        if not full.exists():
            path.replace(full)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", rename_first)
    log.sign_in("eve", "accepted")
    assert full.read_bytes() == written
    assert json.loads(path.read_text(encoding="ascii"))["who"] == "eve"


def _append(path: Path, who: str) -> None:
    log = AuditLog(path, max_bytes=20_000)
    for number in range(200):
        log.read(Interface.MCP, who, f"{who}-{number}", found=True)


def test_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    several = [context.Process(target=_append, args=(path, who)) for who in ("a", "b")]
    for each in several:
        each.start()
    for each in several:
        each.join(60)
    files = [tmp_path / "audit.jsonl.1", path]
    lines = [json.loads(each) for file in files for each in file.read_text().splitlines()]
    last = {each["who"]: each["request"] for each in lines}
    assert last == {"a": "a-199", "b": "b-199"}
