"""Numbers as options."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A finite number in a range. click would accept `nan`, and `inf` if the range has no limit."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
