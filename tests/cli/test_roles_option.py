from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import tailspan

ROLES = 'roles: {sre: {claims: {groups: [sre]}, tenants: "*", models: "*", costs: true}}\n'


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.yaml"
    path.write_text(ROLES)
    return path


def _refusal(*words: str) -> str:
    result = CliRunner().invoke(tailspan, [*words])
    assert result.exit_code == 2, result.output
    return result.output


def test_the_explorer_needs_a_sign_in_for_roles(roles: Path, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/tailspan.db"
    for command in ("up", "ui"):
        words = _refusal(command, "--roles", str(roles), "--database", database)
        assert "--sign-in FILE" in words
    assert not (tmp_path / "tailspan.db").exists()


def test_a_tokens_role_must_exist(roles: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("# comment\nabcdefghijklmnopqrst:finance\n")
    words = ("up", "--no-explorer", "--token-file", str(tokens))
    assert "'finance'; allowed: sre" in _refusal(*words, "--roles", str(roles))
    assert "there is no --roles FILE" in _refusal(*words)
    tokens.write_text("abcdefghijklmnopqrst:\n")
    assert "no role after the colon" in _refusal(*words, "--roles", str(roles))


def test_a_simulated_fleet_needs_a_token_that_writes(roles: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("abcdefghijklmnopqrst:sre\n")
    words = ("up", "--no-explorer", "--simulate", "--token-file", str(tokens))
    assert "cannot send data" in _refusal(*words, "--roles", str(roles))


def test_a_wrong_roles_file_is_refused(roles: Path) -> None:
    roles.write_text(ROLES.replace("costs: true", "costs: yes"))
    for command in (("up", "--no-explorer"), ("ui",), ("mcp", "--transport", "http")):
        words = _refusal(*command, "--roles", str(roles))
        assert "costs" in words
        assert "allowed: true, false" in words
    roles.write_text(f"audit: {roles.parent}/missing/audit.jsonl\n{ROLES}")
    assert "No such file" in _refusal("up", "--no-explorer", "--roles", str(roles))
