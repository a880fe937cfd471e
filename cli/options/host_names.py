"""Options for DNS names."""

from collections.abc import Sequence

import click


class HostNames(click.ParamType[str]):
    """Host names. In an environment variable, the names are separated by commas or blanks."""

    name = "name"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """The names in the variable."""
        return rv.replace(",", " ").split()
