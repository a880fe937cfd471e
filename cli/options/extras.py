"""Check that the libraries of an extra (a group of optional dependencies) are installed."""

from cli.errors import Unreachable
from telemetry.installing import MissingExtra, require


def check_extra(module: str, extra: str, what: str) -> None:
    """Check that a library is installed. The arguments are those of `telemetry.installing.require`.

    Raises:
        Unreachable: the library is missing. The message has the command that installs it.
    """
    try:
        require(module, extra, what)
    except MissingExtra as error:
        raise Unreachable(str(error)) from error
