"""The explorer's process, which runs Streamlit behind Tailspan's access checks.

    python -P -m ui.serving.process [STREAMLIT'S OPTIONS, as --name=value]

At its start, the process imports all pages, reads the columns of the last two days' requests, and
compiles the replay's loop.
"""

import hashlib
import hmac
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import uvicorn
from starlette.middleware import Middleware
from starlette.types import ASGIApp
from streamlit.starlette import App
from streamlit.web import bootstrap

from analysis.access.roles_file import roles_in_force
from analysis.sign_in_file import SignIn, in_force
from collector.listen.host_check import AllowedHosts, HostGate, names_in
from telemetry.addresses import is_loopback
from telemetry.database_urls import default_url
from telemetry.store_errors import StoreError
from telemetry.window import Window
from ui.frame.app import module_of
from ui.frame.pages import PAGES
from ui.frame.read_cache import cached_evidence, opened
from ui.serving.compiling import compile_later
from ui.serving.connections import TimedProtocol
from ui.serving.routes import HEALTH, MAX_MESSAGE_BYTES, Routes
from ui.sign_in.redirect import ReturnToPage

HOUR_NS: Final = 3_600 * 10**9
HOURS: Final = 48
"""Length in hours of the longest range in the menu, together with its baseline."""
ENOUGH_ROWS: Final = 1_000_000
"""Number of rows to read at the start. They take about 180 MB."""
AGAIN_S: Final = 300
_APP: Final = Path(__file__).parent.parent / "app.py"


def main() -> None:
    """Run until terminated."""
    for page in PAGES:
        module_of(page)  # imports the page
    # Use the system's allocator. Arrow's own allocator is slower, and reserves more memory than it
    # uses.
    pa.set_memory_pool(pa.system_memory_pool())
    options = read_options(sys.argv[1:])
    app = application(options, in_force(), os.environ)
    bootstrap.load_config_options(options)
    threading.Thread(target=_read_ahead, name="read ahead", daemon=True).start()
    threading.Thread(target=compile_later, name="compile the replay", daemon=True).start()
    # Do not use `streamlit run`, which accepts messages of 200 MB from a browser. If it listens on
    # all addresses, it also asks a server on the internet for this machine's address.
    uvicorn.run(
        app,
        host=options["server.address"],
        port=options["server.port"],
        log_level="warning",
        access_log=False,
        server_header=False,
        http=TimedProtocol,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
    )


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse Streamlit's options from a command line, with the types that Streamlit requires."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: _typed(value) for name, _, value in pairs}


def _typed(value: str) -> str | int | bool:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isascii() and value.isdecimal() else value


def application(
    options: Mapping[str, Any], settings: SignIn | None, environ: Mapping[str, str]
) -> ASGIApp:
    """The Streamlit application. It receives only requests whose host, origin, route and sign-in
    were checked.

    Args:
        settings: None if sign-in is off.
        environ: contains TAILSPAN_ALLOWED_HOSTS, if it is set.

    Raises:
        ValueError: an allowed name is not a host name, or there are roles without a sign-in.
    """
    address, base_path = options["server.address"], options.get("server.baseUrlPath", "")
    names = names_in([], environ)
    # Allow the listen address and the host of the sign-in file's `url`. IP addresses are always
    # allowed.
    names += [
        name
        for name in (address, settings.host if settings else "localhost")
        if not is_loopback(name) and ":" not in name
    ]
    hosts = AllowedHosts.of(names, loopback=is_loopback(address), protected=False)
    health = f"/{base_path}{HEALTH}" if base_path else HEALTH
    if settings is None and roles_in_force() is not None:
        raise ValueError("--roles needs --sign-in")
    if settings is None:
        return HostGate(Routes(App(_APP), base_path=base_path), hosts, [health])
    from ui.sign_in.page import SignInPage  # requires a library of the extra `sign-in`

    app = App(
        _APP,
        secrets={"auth": _secrets(settings)},
        middleware=[Middleware(ReturnToPage, url=settings.url)],
    )
    return HostGate(
        Routes(app, base_path=base_path, admission=SignInPage(settings)), hosts, [health]
    )


def _secrets(settings: SignIn) -> dict[str, Any]:
    """Streamlit's secrets. They are kept only in memory."""
    secret = settings.client_secret.reveal()
    # The cookie's key is derived from the client's secret. Sessions therefore survive a restart
    # without a further secret.
    signs = hmac.digest(secret.encode(), b"tailspan explorer cookies", hashlib.sha256).hex()
    return {
        "redirect_uri": f"{settings.url}/oauth2callback",
        "cookie_secret": signs,
        "client_id": settings.client_id,
        "client_secret": secret,
        "server_metadata_url": settings.metadata_url,
    }


def _read_ahead() -> None:
    while True:
        with suppress(StoreError):  # the page shows the error
            read_ahead(time.time_ns())
        time.sleep(AGAIN_S)


def read_ahead(now_unix_ns: int) -> None:
    """Read the last `HOURS` hours into the evidence cache, one hour at a time.

    Raises:
        StoreError: the database cannot be opened, or does not respond.
    """
    kept = cached_evidence(opened(default_url()))
    for back in range(HOURS):
        end_ns = now_unix_ns - back * HOUR_NS
        kept.read_ahead(Window(end_ns - HOUR_NS, end_ns))
        if kept.requests >= ENOUGH_ROWS:
            return


if __name__ == "__main__":
    main()
