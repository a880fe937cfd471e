"""What can be wrong with an objective: one root, and a leaf for each place it shows."""

LONGEST_KEY = 200
"""Characters; the longest path of OpenSLO's own keys has 93."""


class AlertsError(Exception):
    """Something in `alerts/` cannot be used as asked; the message says why and what is allowed."""


class DocumentError(AlertsError):
    """A document is not what it must be.

    Args:
        file: as the user named it.
        line: from 1.
        key: the path to the value (`spec.objectives[0].target`), or "" for the whole document.
        problem: the value given and what is allowed.
    """

    def __init__(self, file: str, line: int, key: str, problem: str) -> None:
        if not key.isprintable() or len(key) > LONGEST_KEY:
            key = shown(key)
        super().__init__(f"{file}:{line}: {key + ': ' if key else ''}{problem}")
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem


class ExpressionError(AlertsError, ValueError):
    """An expression cannot be read, or asks for what there is not."""


class RuleError(AlertsError):
    """No rule can be made that would keep what the objective says."""


def shown(value: str) -> str:
    """A value as an error shows it: printable, and not endless."""
    return repr(value if len(value) <= 60 else f"{value[:59]}…")
