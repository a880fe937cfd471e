"""The objectives in force, as their files say now, and what is wrong with those."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from alerts.errors import AlertsError
from alerts.objectives import Goodput, Objective
from alerts.openslo.reader import OBJECTIVES, files_of, inspect_texts
from ui.serving.launch import OBJECTIVES_KEY


@dataclass(frozen=True, slots=True)
class InForce:
    """What the files say; `problem` is a sentence where they cannot be read at all."""

    texts: Mapping[str, str]
    """By file, in their order."""
    objectives: tuple[Objective, ...]
    wrong: tuple[AlertsError, ...]
    notes: tuple[str, ...] = ()
    problem: str | None = None


def in_force(environment: Mapping[str, str] | None = None) -> InForce:
    """Read them. `tailspan up` read the same files when it was started."""
    known = os.environ if environment is None else environment
    named = [each for each in known.get(OBJECTIVES_KEY, "").split(os.pathsep) if each]
    try:
        files = files_of([Path(each) for each in named] or [OBJECTIVES])
        texts = {str(file): file.read_text(encoding="utf-8") for file in files}
    except (OSError, UnicodeDecodeError) as error:
        return InForce({}, (), (), problem=f"The objectives cannot be read: {error}.")
    return of_texts(texts)


def of_texts(texts: Mapping[str, str]) -> InForce:
    """What these texts would put in force."""
    found = inspect_texts(texts)
    return InForce(texts, found.spec.objectives, found.errors, found.spec.notes)


def short(file: str) -> str:
    """A file as its reader knows it: from the folder that Tailspan was started in."""
    path = Path(file)
    for folder in (Path.cwd(), OBJECTIVES.parent.parent):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return file


def thresholds(objectives: Iterable[Objective], field: str) -> list[float]:
    """What is promised of a latency, each value once."""
    return sorted(
        {
            float(value)
            for each in objectives
            if isinstance(each.indicator, Goodput)
            for name, value in each.indicator.thresholds()
            if name == field
        }
    )
