import os
import sys
from pathlib import Path

import pytest

from server.explorer_launch import launch


def test_the_explorer_listens_on_loopback_and_calls_no_host() -> None:
    started = launch(port=8601, database_url="sqlite:///x.db")
    assert started.command[:4] == (sys.executable, "-P", "-m", "ui.serving.process")
    assert {
        "--server.address=127.0.0.1",
        "--server.port=8601",
        "--server.headless=true",
        "--server.showEmailPrompt=false",
        "--server.fileWatcherType=none",
        "--browser.gatherUsageStats=false",
        "--global.developmentMode=false",
        "--server.enableXsrfProtection=true",
        "--client.toolbarMode=minimal",
    } <= set(started.command)


def test_a_password_is_not_on_the_command_line() -> None:
    """Every user can read command lines; only the owner can read the environment."""
    url = "postgresql://tailspan:secret@db/tailspan"
    started = launch(database_url=url)
    assert not any("secret" in argument for argument in started.command)
    assert started.environment == {"TAILSPAN_DATABASE_URL": url}
    state = "postgresql://tailspan:secret@db/state"
    started = launch(database_url=url, state_url=state)
    assert not any("secret" in argument for argument in started.command)
    assert started.environment == {"TAILSPAN_DATABASE_URL": url, "TAILSPAN_STATE_URL": state}


def test_a_base_path_is_passed_without_its_slashes() -> None:
    assert "--server.baseUrlPath=ops/tail" in launch(base_path="/ops/tail/").command
    assert not any("baseUrlPath" in argument for argument in launch().command)


def test_the_environment_has_what_the_explorer_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The explorer may start in another folder, so its paths are absolute."""
    assert launch().environment == {}
    started = launch(
        objectives=[tmp_path / "a.yaml", Path("b")],
        prices=tmp_path / "prices.yaml",
        simulated_past_s=(60, 180),
        otlp_ports=(14317, 14318),
        otlp_scheme="https",
    )
    assert started.environment == {
        "TAILSPAN_OBJECTIVES": f"{tmp_path / 'a.yaml'}{os.pathsep}{Path('b').resolve()}",
        "TAILSPAN_PRICES": str(tmp_path / "prices.yaml"),
        "TAILSPAN_SIMULATED_PAST": "60/180",
        "TAILSPAN_GRPC_PORT": "14317",
        "TAILSPAN_HTTP_PORT": "14318",
        "TAILSPAN_OTLP_SCHEME": "https",
    }
    # The new variable replaces the old one, so it must also contain the old hosts.
    monkeypatch.setenv("TAILSPAN_ALLOWED_HOSTS", "a.example")
    assert launch().environment == {}
    assert launch(allowed_hosts=["b.example"]).environment == {
        "TAILSPAN_ALLOWED_HOSTS": "b.example,a.example"
    }
