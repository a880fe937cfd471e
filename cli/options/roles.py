"""`--roles`: what each role may see."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cli.errors import reason
from cli.options.settings import setting

if TYPE_CHECKING:
    from analysis.access.roles_file import Roles

NO_SIGN_IN: Final = (
    "--roles: the explorer gets a reader's roles from the sign-in: set --sign-in FILE, or start"
    " tailspan up with --no-explorer"
)

roles_option = setting(
    "--roles",
    group="Access",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="YAML file of roles: the tenants, models and costs that readers of the explorer, the API"
    " and MCP may see (docs/access.md). Default: each reader sees everything.",
)


def roles_of(file: Path | None) -> "Roles | None":
    """The roles, or None without the option.

    Raises:
        click.UsageError: the file is invalid, or the audit log cannot be written.
    """
    from alerts.errors import AlertsError
    from analysis.access.audit_log import check_writable
    from analysis.access.roles_file import load_roles

    if file is None:
        return None
    try:
        roles = load_roles(file)
        if roles.audit is not None:
            check_writable(roles.audit)
    except (AlertsError, OSError) as error:
        raise click.UsageError(f"--roles: {reason(error)}") from error
    return roles
