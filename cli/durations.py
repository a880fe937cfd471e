"""Durations on the command line: `90`, `90s`, `15m`, `1h`."""

import re

import click

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """Seconds, from `90`, `90s`, `15m` or `1h`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, or click's error that names what is allowed."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r}; allowed: seconds, or a number with s, m or h, as in 15m")
        return float(found[1]) * _UNITS_S[found[2]]


DURATION = Duration()
