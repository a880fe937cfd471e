"""Record a real vLLM in several configurations under seeded traffic, for
benchmarks/compare_real."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from rig.faults.other_processes import wait_for_quiet
from rig.faults.recording import EXPORTED_S, RecordedInterval, collecting, record_interval, serving
from rig.faults.traffic import PlannedTraffic
from telemetry.window import Window

USUAL: Final = "usual"
AGAIN: Final = "restarted"
_SEATS: Final = ("--max-num-seqs", "16")
CONFIGURATIONS: Final = {
    USUAL: _SEATS,
    "budget": (*_SEATS, "--max-num-batched-tokens", "48"),
    "compiled": (*_SEATS, "--no-enforce-eager"),
    AGAIN: _SEATS,
}
"""vLLM's arguments, in the order of the recording. The last configuration repeats the usual
configuration, to show whether the machine's speed drifted."""

FIRST: Final = "first"
SAME: Final = "same mix"
CHANGED: Final = "other mix"
FILE: Final = "windows.json"
EARLIER: Final = 4
"""Number of processes with the usual configuration before the first window. They show the effect of
a restart."""
SETTLED_S: Final = 10.0
"""Seconds of traffic before each configuration's windows. So no window begins directly after an
idle time."""


class WindowsError(Exception):
    """A folder has no usable recording, or already has a recording."""


@dataclass(frozen=True, slots=True)
class ServedWindow:
    """A window with the traffic that one configuration served."""

    configuration: str
    traffic: str
    stretch: RecordedInterval
    answered: int
    failed: int

    @property
    def window(self) -> Window:
        """The window in unix nanoseconds."""
        return Window(round(self.stretch.begun_s * 1e9), round(self.stretch.ended_s * 1e9))


def traffics(rate_per_s: float) -> dict[str, PlannedTraffic]:
    """Maps each window's name to its traffic. `rate_per_s` is the rate before the mix of requests
    changes."""
    usual = _mixed(PlannedTraffic(rate_per_s=rate_per_s), long_share=0.15)
    new = PlannedTraffic(
        rate_per_s=0.15 * rate_per_s,
        tenants=("eve",),
        prompt_tokens=(150, 300),
        output_tokens=(40, 80),
    )
    other = _mixed(PlannedTraffic(rate_per_s=1.05 * rate_per_s), long_share=0.25)
    return {FIRST: usual, SAME: usual, CHANGED: replace(other, extra=(*other.extra, new))}


def _mixed(usual: PlannedTraffic, long_share: float) -> PlannedTraffic:
    """The traffic of one window. A share of its requests has long prompts."""
    long = replace(usual, rate_per_s=long_share * usual.rate_per_s, prompt_tokens=(300, 600))
    return replace(usual, rate_per_s=(1 - long_share) * usual.rate_per_s, extra=(long,))


def record(
    changes: Sequence[str],
    folder: Path,
    *,
    seed: int,
    rate_per_s: float,
    seconds: float,
    log_line: Callable[[str], None],
) -> list[ServedWindow]:
    """Record the usual and the changed configurations. Ctrl-C ends the recording early.

    Args:
        folder: where to write the database and `FILE`.
        changes: keys of `CONFIGURATIONS`, except `USUAL`.
        seed: determines the arrivals on each configuration.

    Raises:
        WindowsError: the folder already has a recording.
        RecordingError: a program did not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / FILE).exists():
        raise WindowsError(
            f"{folder} already has a recording; choose another folder, or use it again with"
            f" --recorded {folder}"
        )
    by_name = traffics(rate_per_s)
    order = [USUAL, *(name for name in CONFIGURATIONS if name in changes)]
    found: list[ServedWindow] = []
    try:
        with (
            collecting(folder) as otlp_port,
            serving(folder, otlp_port, CONFIGURATIONS[USUAL]) as server,
        ):
            for number in range(EARLIER):
                log_line(f"earlier process {number + 1} of {EARLIER} …")
                wait_for_quiet()
                record_interval(server, by_name[FIRST], f"{seed}/earlier {number}", seconds)
                server.restart(CONFIGURATIONS[USUAL])
                server.warm_up()
            for configuration in order:
                if configuration != USUAL:
                    server.restart(CONFIGURATIONS[configuration])
                    server.warm_up()
                log_line(f"{configuration} …")
                record_interval(server, by_name[FIRST], f"{seed}/{configuration}", SETTLED_S)
                for name in by_name if configuration == USUAL else (SAME, CHANGED):
                    wait_for_quiet()
                    log_line(f"  {name} …")
                    sent = record_interval(server, by_name[name], f"{seed}/{name}", seconds)
                    found.append(ServedWindow(configuration, name, *sent))
                    (folder / FILE).write_text(json.dumps([asdict(each) for each in found]) + "\n")
            time.sleep(EXPORTED_S)
    except KeyboardInterrupt:
        log_line(f"interrupted after {len(found)} windows")
    return found


def read_windows(folder: Path) -> list[ServedWindow]:
    """The windows of an earlier recording.

    Raises:
        WindowsError: the folder has no recording, or its file is malformed.
    """
    path = folder / FILE
    try:
        found = [
            ServedWindow(**{**each, "stretch": RecordedInterval(**each["stretch"])})
            for each in json.loads(path.read_text())
        ]
        _ = [each.window for each in found]  # raises TypeError if an instant is not a number
    except OSError as error:
        raise WindowsError(f"{path}: {error.strerror}; --keep writes this file") from error
    except (ValueError, TypeError, KeyError) as error:
        raise WindowsError(
            f"{path} is not a list of windows as --keep writes it: {error!r}"
        ) from error
    return found
