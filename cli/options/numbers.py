"""Options whose value is a number."""

import math
from typing import Any

import click


class WholeRange(click.IntRange):
    """A whole number. If a text is no number, the error states the allowed range. click's own error
    does not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            number = int(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a whole number in the range {self._describe_range()}.",
                param,
                ctx,
            )
        whole: int = super().convert(number, param, ctx)
        return whole


class FiniteRange(click.FloatRange):
    """A finite number. click's own type would accept `nan`, and perhaps `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        try:
            given = float(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a number in the range {self._describe_range()}.", param, ctx
            )
        number: float = super().convert(given, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
