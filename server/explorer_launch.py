"""The command line and the environment of the explorer's process."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from analysis.access.roles_file import ROLES_KEY
from analysis.first_minute import ENVIRONMENT_KEY as PAST_KEY
from analysis.sign_in_file import SIGN_IN_KEY
from collector.listen.host_check import ENVIRONMENT_KEY as HOSTS_KEY
from collector.listen.host_check import names_in
from cost.pricefile import ENVIRONMENT_KEY as PRICES_KEY
from telemetry import child_process
from telemetry.database_urls import ENVIRONMENT_KEY, STATE_ENVIRONMENT_KEY
from telemetry.otlp_urls import GRPC_KEY, HTTP_KEY, SCHEME_KEY

if TYPE_CHECKING:  # the imported library is required only for sign-in
    from analysis.sign_in_file import SignIn

DEFAULT_PORT: Final = 8501


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line, and variables to add to the environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def launch(
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    base_path: str = "",
    database_url: str | None = None,
    state_url: str | None = None,
    objectives: Sequence[Path] = (),
    prices: Path | None = None,
    sign_in: tuple[Path, "SignIn"] | None = None,
    roles: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    simulated_past_s: tuple[int, int] | None = None,
    otlp_ports: tuple[int, int] | None = None,
    otlp_scheme: str = "http",
) -> Launch:
    """The command and environment of the explorer's process.

    Other users can read command lines. So the database's URL, which may contain a password, is
    passed in a variable. The explorer's process reads the sign-in file itself.

    Args:
        base_path: the URL path under which a proxy serves the explorer.
        database_url, state_url, prices: if None, the value in the environment or the default is
            used.
        objectives: files and folders. If there are none, the built-in objectives are used.
        allowed_hosts: additional host names for browsers. IP addresses, localhost, `host`, the host
            in `sign_in` and the names in the environment are always allowed.
        simulated_past_s: start and end of the simulated backfill in unix seconds.
        otlp_ports: the collector's gRPC and HTTP ports, or None if the explorer runs alone.
    """
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.baseUrlPath": base_path.strip("/"),
        "server.headless": "true",
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        # A config.toml in the working directory must not enable what `ui.serving.routes` blocks.
        "server.enableCORS": "true",
        "server.enableXsrfProtection": "true",
        "server.enableStaticServing": "false",
        "server.scriptHealthCheckEnabled": "false",
        "server.enableWebsocketCompression": "false",
        "server.maxUploadSize": "1",  # MB; uploads are refused before they reach Streamlit
        "server.maxWidgetStateSize": "1",  # MB; as in `ui.serving.routes`
        "global.developmentMode": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "runner.magicEnabled": "false",
        "logger.level": "warning",
        "theme.light.primaryColor": "#275fb8",
        "theme.dark.primaryColor": "#6ea3f0",
    }
    environment = reading_environment(database_url, objectives, prices, state_url, roles)
    if sign_in is not None:
        environment[SIGN_IN_KEY] = str(sign_in[0].resolve())
    if allowed_hosts:
        environment[HOSTS_KEY] = ",".join(names_in(allowed_hosts, os.environ))
    if simulated_past_s is not None:
        environment[PAST_KEY] = "{}/{}".format(*simulated_past_s)
    if otlp_ports is not None:
        environment |= zip((GRPC_KEY, HTTP_KEY), map(str, otlp_ports), strict=True)
        environment[SCHEME_KEY] = otlp_scheme
    return Launch(
        command=(
            *child_process.command("ui.serving.process"),
            *(f"--{name}={value}" for name, value in options.items() if value),
        ),
        environment=environment,
    )


def reading_environment(
    database_url: str | None,
    objectives: Sequence[Path],
    prices: Path | None,
    state_url: str | None = None,
    roles: Path | None = None,
) -> dict[str, str]:
    """Return variables for a child that reads the database. `launch` describes the arguments."""
    environment = {} if database_url is None else {ENVIRONMENT_KEY: database_url}
    if state_url is not None:
        environment[STATE_ENVIRONMENT_KEY] = state_url
    if objectives:
        environment[OBJECTIVES_KEY] = os.pathsep.join(str(path.resolve()) for path in objectives)
    if prices is not None:
        environment[PRICES_KEY] = str(prices.resolve())
    if roles is not None:
        environment[ROLES_KEY] = str(roles.resolve())
    return environment
