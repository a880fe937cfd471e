"""Check that the libraries of an extra are installed."""

from cli.errors import Unreachable
from telemetry.installing import MissingExtra, require


def check_extra(module: str, extra: str, what: str) -> None:
    """Raise Unreachable if a library is missing. The error names the command that installs it.

    `telemetry.installing.require` has the same arguments.
    """
    try:
        require(module, extra, what)
    except MissingExtra as error:
        raise Unreachable(str(error)) from error
