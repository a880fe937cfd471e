"""Credentials for scrape targets: `--scrape-…` and `--dcgm-…`."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.options.settings import setting

if TYPE_CHECKING:  # a slow import
    from collector.scrape.credentials import TargetCredentials

_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """The credentials of one kind of target. `targets` is the option for such targets, such as
    `--scrape`."""

    targets: str

    @property
    def token_variable(self) -> str:
        """The variable that can contain the token."""
        return f"TAILSPAN_{self.targets.removeprefix('--').upper()}_TOKEN"

    def options(self, group: str) -> tuple[Callable[..., Any], ...]:
        """The decorators that add the options."""
        return (
            setting(
                f"{self.targets}-token-file",
                group=group,
                value_variable=self.token_variable,
                type=_FILE,
                metavar="FILE",
                help=(
                    f"File with a bearer token for each {self.targets}, read again for each"
                    f" scrape. {self.token_variable} can contain the token instead."
                ),
            ),
            setting(
                f"{self.targets}-ca",
                group=group,
                type=_FILE,
                metavar="FILE",
                show_default="the system's",
                help=f"CA that signed the certificates of each {self.targets}, in PEM.",
            ),
        )

    def read(
        self,
        given: tuple[str, ...],
        token_file: Path | None,
        ca: Path | None,
        insecure: bool = False,
    ) -> "TargetCredentials":
        """Parse the options for the `given` targets.

        Raises:
            click.UsageError: there is a credential but no target, or a file cannot be read.
        """
        from collector.errors import SecurityError
        from collector.scrape.credentials import OPEN, TargetCredentials

        token_option, ca_option = f"{self.targets}-token-file", f"{self.targets}-ca"
        for option, path in ((token_option, token_file), (ca_option, ca)):
            if path and not given:
                raise click.UsageError(f"{option} requires {self.targets}")
        if not given:
            return OPEN
        if token_file is None and (named := os.environ.get(f"{self.token_variable}_FILE")):
            token_file = Path(named)
        token = None if token_file else os.environ.get(self.token_variable)
        access = TargetCredentials(
            token=token or None, token_file=token_file, ca_file=ca, insecure=insecure
        )
        try:
            access.check()
        except SecurityError as error:
            raise click.UsageError(f"{token_option}, {ca_option}: {error}") from error
        return access
