"""Options for DNS names."""

from collections.abc import Sequence

import click


class Names(click.ParamType[str]):
    """DNS names. The variable contains several names, separated by commas or blanks."""

    name = "name"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Split the value of the variable."""
        return rv.replace(",", " ").split()
