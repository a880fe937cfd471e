"""Numbers as options."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number between two ends. click lets `nan` pass every comparison, and `inf` an open end."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number
