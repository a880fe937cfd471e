"""Read the results of probes for the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from analysis.outside.answer import OutsideAnswer, OutsideQuestion
from analysis.outside.outside import answer_outside
from store.probes import newest_probe_unix_ns, probe_label_values
from store.queries import Window

MOST_OPTIONS: Final = 500
"""Maximum number of regions or endpoints that a filter offers."""


@dataclass(frozen=True, slots=True)
class Found:
    """The data of the page.

    `newest_unix_ns` is always None, so the frame does not report missing data. Probes may be an
    hour apart, so the page itself shows the age of each endpoint's latest probe. `simulated` is
    always False, because the simulator sends no probes.
    """

    answer: OutsideAnswer
    options: Mapping[str, Sequence[str]]
    """The values that each filter offers."""
    latest_unix_ns: int | None
    """When the latest probe that matches the filters was due, even if it is outside the range. None
    if the range has probes, because only a page without probes shows this time."""
    newest_unix_ns: int | None = None
    simulated: bool = False


def read_outside(engine: Engine, window: Window, equals: Mapping[str, str | None]) -> Found:
    """Read the probes of a range.

    Args:
        engine: the database, from `open_database`.
        window: the range.
        equals: the chosen region and endpoint.
    """
    answer = answer_outside(engine, OutsideQuestion(window, equals))
    return Found(
        answer,
        {
            label: probe_label_values(engine, window, label)[:MOST_OPTIONS]
            for label in ("region", "endpoint")
        },
        None if answer.places else newest_probe_unix_ns(engine, equals),
    )
