"""`--insecure-credentials`: whether a credential may go where others can read it."""

import os
from typing import Final

import click

from cli.options.settings import setting
from telemetry.addresses import INSECURE_OPTION, exposes, exposure

OTLP_HEADERS: Final = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_", "LOGS_")
)
"""Variables that OpenTelemetry's exporters send with each message; they hold tokens."""


_HELP: Final = (
    "Also send tokens and keys over http to other machines, where others can read them on the way."
    " Without it they are sent only over https or to loopback."
)

insecure_credentials_option = click.option(INSECURE_OPTION, is_flag=True, help=_HELP)
insecure_credentials_setting = setting(INSECURE_OPTION, group="Access", is_flag=True, help=_HELP)


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
