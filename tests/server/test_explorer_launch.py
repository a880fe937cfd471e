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


def test_without_a_url_the_environment_stays_as_it_is() -> None:
    assert launch().environment == {}


def test_the_explorer_gets_the_current_objectives(tmp_path: Path) -> None:
    """The explorer may start in another folder, so the paths are absolute."""
    started = launch(objectives=[tmp_path / "a.yaml", Path("b")])
    assert started.environment == {
        "TAILSPAN_OBJECTIVES": f"{tmp_path / 'a.yaml'}{os.pathsep}{Path('b').resolve()}"
    }


def test_the_explorer_gets_the_current_prices(tmp_path: Path) -> None:
    started = launch(prices=tmp_path / "prices.yaml")
    assert started.environment == {"TAILSPAN_PRICES": str(tmp_path / "prices.yaml")}


def test_the_explorer_gets_the_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new variable replaces the old variable, so it must also contain the old hosts."""
    monkeypatch.setenv("TAILSPAN_ALLOWED_HOSTS", "a.example")
    assert launch().environment == {}
    assert launch(allowed_hosts=["b.example"]).environment == {
        "TAILSPAN_ALLOWED_HOSTS": "b.example,a.example"
    }


def test_the_explorer_gets_the_range_of_the_simulated_past() -> None:
    assert launch(simulated_past_s=(60, 180)).environment == {"TAILSPAN_SIMULATED_PAST": "60/180"}


def test_the_explorer_receives_the_addresses_of_the_collector() -> None:
    assert launch(otlp_ports=(14317, 14318), otlp_scheme="https").environment == {
        "TAILSPAN_GRPC_PORT": "14317",
        "TAILSPAN_HTTP_PORT": "14318",
        "TAILSPAN_OTLP_SCHEME": "https",
    }
