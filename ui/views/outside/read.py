"""Read the results of probes for the Outside page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from analysis.outside.answer import OutsideAnswer, OutsideQuestion
from analysis.outside.outside import answer_outside, newest_probe, probe_values
from telemetry.window import Window

MAX_OPTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class OutsideData:
    """The data of the page.

    `newest_unix_ns` is None, because probes may be an hour apart. The page shows each endpoint's
    age instead.
    """

    answer: OutsideAnswer
    options: Mapping[str, Sequence[str]]
    latest_unix_ns: int | None
    """The time of the latest stored probe. It is None if the range has probes."""
    newest_unix_ns: int | None = None
    simulated: bool = False


def read_outside(engine: Engine, window: Window, equals: Mapping[str, str | None]) -> OutsideData:
    """Read the probes of a range, from the region and endpoint in `equals`."""
    answer = answer_outside(engine, OutsideQuestion(window, equals))
    return OutsideData(
        answer,
        {
            label: probe_values(engine, window, label)[:MAX_OPTIONS]
            for label in ("region", "endpoint")
        },
        None if answer.endpoints else newest_probe(engine, equals),
    )
