"""`--insecure-credentials`: allow credentials over an unencrypted connection."""

import os
from typing import Final

import click

from cli.options.settings import setting
from telemetry.addresses import INSECURE_OPTION, exposes, exposure

OTLP_HEADERS: Final = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_", "LOGS_")
)
"""Variables with headers, such as tokens, that OpenTelemetry's exporters send."""


_HELP: Final = (
    "Also send tokens and keys over http to other machines, where others on the network can read"
    " them. By default, they are sent only over https or to loopback."
)

insecure_credentials_option = click.option(INSECURE_OPTION, is_flag=True, help=_HELP)
insecure_credentials_setting = setting(INSECURE_OPTION, group="Access", is_flag=True, help=_HELP)


def check_exposure(option: str, url: str, what: str, insecure: bool) -> None:
    """Raise click.UsageError if a credential would be sent over an unencrypted connection.

    `option` and `what` (the credential) are for the message.
    """
    if not insecure and exposes(url):
        raise click.UsageError(f"{option} {exposure(url, what)}")


def check_otlp_headers(option: str, url: str, insecure: bool) -> None:
    """Check the headers that OpenTelemetry's exporters read from the environment."""
    for name in OTLP_HEADERS:
        if os.environ.get(name):
            check_exposure(option, url, name, insecure)
