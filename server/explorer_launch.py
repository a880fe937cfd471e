"""How the explorer is started: one command line, for whoever runs it as a process."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alerts.openslo import ENVIRONMENT_KEY as OBJECTIVES_KEY
from analysis.sign_in_file import SIGN_IN_KEY
from collector.listen.host_check import ENVIRONMENT_KEY as HOSTS_KEY
from collector.listen.host_check import names_in
from cost.pricefile import ENVIRONMENT_KEY as PRICES_KEY
from store.database import ENVIRONMENT_KEY
from telemetry import child_process

if TYPE_CHECKING:  # its library is only wanted where readers sign in
    from analysis.sign_in_file import SignIn

DEFAULT_PORT: Final = 8501


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
    sign_in: tuple[Path, "SignIn"] | None = None,
    allowed_hosts: Sequence[str] = (),
) -> Launch:
    """The explorer's process.

    Args:
        host: the address to listen on; loopback unless the caller decides otherwise.
        port: the port to listen on.
        base_path: the path under which a proxy serves the page, without slashes around it.
        database_url: a SQLAlchemy URL; None leaves the environment's, or the default.
        objectives: the files and folders of those in force; none for those that come along.
        prices: the price file in force; None leaves the environment's, or the list prices.
        sign_in: the file that says how readers sign in, and what it says; None for nobody is
            asked. The process reads the file itself: a secret is on no command line.
        allowed_hosts: names under which browsers may address the pages, beside addresses,
            localhost, `host` and that of `sign_in`; added to those of the environment.

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
        # A config.toml in the working directory must not open what `ui.serving.routes` closes.
        "server.enableCORS": "true",
        "server.enableXsrfProtection": "true",
        "server.enableStaticServing": "false",
        "server.scriptHealthCheckEnabled": "false",
        "server.enableWebsocketCompression": "false",
        "server.maxUploadSize": "1",  # MB; uploads are refused before Streamlit sees them
        "server.maxWidgetStateSize": "1",  # MB; as MOST_MESSAGE_BYTES of `ui.serving.routes`
        "global.developmentMode": "false",
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
    if sign_in is not None:
        environment[SIGN_IN_KEY] = str(sign_in[0].resolve())
    if allowed_hosts:
        environment[HOSTS_KEY] = ",".join(names_in(allowed_hosts, os.environ))
    return Launch(
        command=(
            *child_process.command("ui.serving.process"),
            *(f"--{name}={value}" for name, value in options.items() if value),
        ),
        environment=environment,
    )
