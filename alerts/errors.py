"""Errors in objectives and in files that `alerts/` reads."""

LONGEST_KEY = 200
"""Maximum length of a key's path in an error message. OpenSLO's longest path has 93 characters."""


class AlertsError(Exception):
    """Base class of the errors in this package."""


class DocumentError(AlertsError):
    """A document is invalid.

    Args:
        line: the line number, from 1, or None if the file cannot be read.
        key: the path to the value (`spec.objectives[0].target`), or "" for the whole document.
        problem: the value in the document and the allowed values.
    """

    def __init__(self, file: str, line: int | None, key: str, problem: str) -> None:
        if not key.isprintable() or len(key) > LONGEST_KEY:
            key = shown(key)
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key + ': ' if key else ''}{problem}")
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem


class ExpressionError(AlertsError, ValueError):
    """An expression is malformed, or uses an unknown field or value."""


class RuleError(AlertsError):
    """An objective cannot be expressed as a Prometheus rule."""


def shown(value: str) -> str:
    """The value as printable text of at most 60 characters, for an error message."""
    return repr(value if len(value) <= 60 else f"{value[:59]}…")
