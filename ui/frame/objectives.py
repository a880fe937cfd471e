"""Read the objectives in the files that Tailspan was started with."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from alerts.errors import AlertsError
from alerts.objectives import GoodEvents, Goodput, Objective
from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from alerts.openslo.reader import OBJECTIVES, files_of, inspect_texts
from analysis.access.evidence import thresholds_for
from analysis.access.visible_objectives import visible_objectives
from analysis.database import hides_rows

_PARSED: Final = 8
"""Maximum number of parsed sets of files. Each edit tried on the SLOs page is one set."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """The objectives in the files, and their errors.

    Attributes:
        parsed: the objectives whose thresholds may be compared with the visible requests.
        problem: the reason why the files cannot be read, or None.
        hidden: names of the objectives in `parsed` that the reader may not see, because they count
            requests that are hidden from this reader.
    """

    texts: Mapping[str, str]
    parsed: tuple[Objective, ...] = ()
    errors: tuple[AlertsError, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str | None = None
    hidden: frozenset[str] = frozenset()

    @property
    def visible(self) -> tuple[Objective, ...]:
        """The objectives that the reader may see."""
        return tuple(each for each in self.parsed if each.name not in self.hidden)

    @property
    def counted(self) -> list[Objective]:
        """The visible objectives that Tailspan counts. Prometheus evaluates all others."""
        return [each for each in self.visible if isinstance(each.indicator, GoodEvents)]

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """A cache key that identifies the objectives."""
        return tuple((each.name, each.statement) for each in self.parsed)


def read_objectives(environment: Mapping[str, str] | None = None) -> Objectives:
    """Read the files that `tailspan up` was started with. Unchanged files are not parsed again."""
    known = os.environ if environment is None else environment
    named = [each for each in known.get(OBJECTIVES_KEY, "").split(os.pathsep) if each]
    try:
        files = files_of([Path(each) for each in named] or [OBJECTIVES])
        texts = {str(file): file.read_text(encoding="utf-8") for file in files}
    except (OSError, UnicodeDecodeError) as error:
        return Objectives({}, problem=f"The objectives cannot be read: {error}.")
    return parse_texts(texts)


def for_reader(engine: Engine, objectives: Objectives) -> Objectives:
    """The objectives for the reader of this restricted database.

    If the reader may not see all requests, the texts of the files are omitted.
    """
    if not hides_rows(engine):
        return objectives
    compared = thresholds_for(engine, objectives.parsed)
    visible = {each.name for each in visible_objectives(engine, objectives.parsed)}
    hidden = frozenset(each.name for each in compared if each.name not in visible)
    return Objectives({}, compared, problem=objectives.problem, hidden=hidden)


def parse_texts(texts: Mapping[str, str]) -> Objectives:
    """Parse the objectives in the contents of files. Results are cached."""
    return _parsed(tuple(texts.items()))


@lru_cache(maxsize=_PARSED)
def _parsed(texts: tuple[tuple[str, str], ...]) -> Objectives:
    known = dict(texts)
    found = inspect_texts(known)
    return Objectives(known, found.spec.objectives, found.errors, found.spec.notes)


def short(file: str) -> str:
    """A file's path, relative to the working directory if possible."""
    path = Path(file)
    for folder in (Path.cwd(), OBJECTIVES.parent.parent):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return file


def thresholds(objectives: Iterable[Objective], field: str) -> list[float]:
    """The distinct thresholds of the objectives for one latency, in ascending order."""
    return sorted(
        {
            float(value)
            for each in objectives
            if isinstance(each.indicator, Goodput)
            for name, value in each.indicator.thresholds()
            if name == field
        }
    )
