"""The result of a check, and how to repair the problem."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from telemetry.printable import printable

_WIDEST: Final = 200


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of a check in one line. `ok` is None if the result is neither good nor bad."""

    check: str
    ok: bool | None
    detail: str
    mend: str | None = None


def guarded(look: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
    """Yield a check's findings. If the check raises an error, yield a finding for the error."""
    try:
        yield from look
    except Exception as error:  # any error here is a defect of the check
        what = getattr(look, "__name__", "look")
        detail = printable(f"the check failed: {type(error).__name__}: {error}", _WIDEST)
        yield CheckFinding(
            what, None, detail, "this is a defect of tailspan doctor; please report it"
        )


def as_json(finding: CheckFinding) -> str:
    """A JSON object on one line."""
    return json.dumps(asdict(finding))


def as_text(finding: CheckFinding) -> str:
    """The result in one line, and the repair, if any, in a second line."""
    mark = {True: "ok  ", False: "FAIL", None: "?   "}[finding.ok]
    line = f"{mark}  {finding.check:<10} {finding.detail}"
    return f"{line}\n      {'':<10} → {finding.mend}" if finding.mend else line


def length(seconds: float) -> str:
    """A duration as text."""
    for unit, unit_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.0f} {unit}"
    return f"{seconds:.0f} s"
