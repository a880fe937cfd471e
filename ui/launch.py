"""How the explorer is started: one command line, for whoever runs it as a process."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cost.pricefile import ENVIRONMENT_KEY as PRICES_KEY
from store.database import ENVIRONMENT_KEY

DEFAULT_PORT: Final = 8501

OBJECTIVES_KEY: Final = "TAILSPAN_OBJECTIVES"
"""The environment's word for the files and folders of the objectives in force, as PATH has them."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start: its command line, and what to add to the environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def launch(
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    base_path: str = "",
    database_url: str | None = None,
    objectives: Sequence[Path] = (),
    prices: Path | None = None,
) -> Launch:
    """The explorer's process.

    Args:
        host: the address to listen on; loopback unless the caller decides otherwise.
        port: the port to listen on.
        base_path: the path under which a proxy serves the page, without slashes around it.
        database_url: a SQLAlchemy URL; None leaves the environment's, or the default.
        objectives: the files and folders of those in force; none for those that come along.
        prices: the price file in force; None leaves the environment's, or the list prices.

    Returns:
        The command, and the variables to add to the caller's environment. The database's URL
        goes by the environment because it may hold a password, and command lines are public.
    """
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.baseUrlPath": base_path.strip("/"),
        "server.headless": "true",
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "server.maxUploadSize": "1",  # MB; the page takes no files
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "runner.magicEnabled": "false",
        "logger.level": "warning",
        "theme.light.primaryColor": "#275fb8",
        "theme.dark.primaryColor": "#6ea3f0",
    }
    environment = {} if database_url is None else {ENVIRONMENT_KEY: database_url}
    if objectives:
        environment[OBJECTIVES_KEY] = os.pathsep.join(str(path.resolve()) for path in objectives)
    if prices is not None:
        environment[PRICES_KEY] = str(prices.resolve())
    app = Path(__file__).with_name("app.py")
    return Launch(
        command=(
            *(sys.executable, "-m", "streamlit", "run", str(app)),
            *(f"--{name}={value}" for name, value in options.items() if value),
        ),
        environment=environment,
    )
