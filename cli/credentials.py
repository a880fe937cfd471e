"""`--insecure-credentials`: whether a credential may go where others can read it."""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from telemetry.addresses import INSECURE_OPTION, exposes, exposure

_Command = TypeVar("_Command", bound=Callable[..., Any])

OTLP_HEADERS: Final = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_", "LOGS_")
)
"""Variables that OpenTelemetry's exporters send with each message; they hold tokens."""


def insecure_credentials_option(command: _Command) -> _Command:
    """Add the option."""
    return click.option(
        INSECURE_OPTION,
        is_flag=True,
        help="Send tokens and keys over http to other machines, too, where others can read them on"
        " the way. Without it they go over https or to loopback alone.",
    )(command)


def check_exposure(option: str, url: str, what: str, insecure: bool) -> None:
    """Refuse to send a credential where others can read it.

    Args:
        option: what names the address.
        url: where the credential would go.
        what: names the credential.
        insecure: whether the user allows it.

    Raises:
        click.UsageError: not https, not loopback, and not allowed.
    """
    if not insecure and exposes(url):
        raise click.UsageError(f"{option} {exposure(url, what)}")


def check_otlp_headers(option: str, url: str, insecure: bool) -> None:
    """The same for the headers that OpenTelemetry's exporters read from the environment."""
    for name in OTLP_HEADERS:
        if os.environ.get(name):
            check_exposure(option, url, name, insecure)
