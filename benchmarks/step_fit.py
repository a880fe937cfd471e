"""Measures which fit of the step model best predicts busy times that the fit did not use.

    python benchmarks/step_fit.py [--seconds 180] [--rate 3] [--seed 3] [--keep FOLDER]

A real vLLM on this machine's CPU serves prompts and answers of varied lengths, once on a quiet
machine, and once with CPU-bound processes for a third of the time. A plugin of this benchmark
writes every step to a file. The fits are computed from the first half of each run, and their
errors from the second half. Durations do not contain detected stalls.

as reported                   the median of the coefficients that the plugin fits inside the engine,
                              scaled so that they explain the total busy time (used for predictions)
seconds                       a regression of the busy time between two samples on the work
steps                         the normal equations of single steps
steps, worst seconds dropped  as `steps`, but without the worst quarter of the seconds, and scaled
steps, relative errors        the normal equations with the relative errors of steps, scaled
steps, without κ              the normal equations without attention pairs

No fit has negative coefficients. The printed table shows three errors. The column "busy time" shows
the error of the predicted busy time of each second. The column "at pace" shows the same error with
scaled durations: their sum in each 5 s equals the measured busy time, as in predictions. The column
"one step" shows the median error of a single step.
"""

import argparse
import json
import os
import pickle
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._recording import Planned, record_in_turn
from benchmarks._step_fits import SingleSteps, all_fits, errors
from diagnosis.inputs.arrow import samples_of
from replay.fit import StepReports
from rig.faults.cpu_hogs import running_hogs
from rig.install import ProgramUnavailableError, ensure
from rig.load import Call
from simulator.dataset import table_of
from telemetry.engines import EngineSample

RECORDER = Path(__file__).parent / "_step_recorder"
WARM_S = 25.0
"""Seconds in which the plugin fits its step model. Steps in this time are not used."""
HOG_S, PERIOD_S = 10.0, 30.0
"""In the disturbed run, CPU-bound processes run for `HOG_S` seconds of every `PERIOD_S` seconds."""
PROMPT_TOKENS = 8, 6000
OUTPUT_TOKENS = 4, 120
ARGUMENTS = "--max-model-len", "8192"
"""vLLM's arguments, which allow long prompts. Long prompts show the attention term, which grows
with the squared length."""
WORK = (
    *("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total"),
    *("context_tokens_total", "decodes_total", "prefill_steps_total"),
)
COEFFICIENTS = (
    *("step_model_base_s", "step_model_per_prefill_token_s"),
    *("step_model_per_prefill_attention_s", "step_model_per_context_token_s"),
    *("step_model_per_decode_s", "step_model_per_prefill_step_s"),
)


@dataclass(frozen=True, eq=False)
class StepFitRun:
    """The samples and the steps of one run. Times are in seconds since the start of the load."""

    at_s: np.ndarray
    reports: StepReports
    steps: SingleSteps
    stall_s: np.ndarray
    load: float
    """The machine's load average over one minute, before the run."""


def calls(seconds: float, rate_per_s: float, seed: int) -> Planned:
    """Return a Poisson load. The tiny model's tokeniser has one token per character.

    A third of the prompts begin with the same tokens, so that some prefixes are cached.
    """
    draw = random.Random(seed)
    least, most = PROMPT_TOKENS
    shared = "".join(draw.choices("abcdefgh ", k=400))
    planned, at_s = [], 0.0
    while (at_s := at_s + draw.expovariate(rate_per_s)) < WARM_S + seconds:
        length = min(int(draw.lognormvariate(5.5, 1.2)) + least, most)
        prompt = "".join(draw.choices("abcdefgh ", k=length))
        if draw.random() < 1 / 3:
            prompt = (shared + prompt)[:most]
        call = Call(chat=False, prompt=prompt, max_tokens=draw.randint(*OUTPUT_TOKENS))
        planned.append((at_s, call))
    return planned


@contextmanager
def hogs_at_times() -> Iterator[None]:
    """Run two CPU-bound processes per core for `HOG_S` of every `PERIOD_S` seconds."""
    ended = threading.Event()

    def run() -> None:
        ended.wait(WARM_S)
        while not ended.is_set():
            with running_hogs(2 * (os.cpu_count() or 1)):
                ended.wait(HOG_S)
            ended.wait(PERIOD_S - HOG_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def served(planned: Planned, disturbed: bool) -> StepFitRun:
    """Start vLLM with the recorder, send the load, and return the recorded data.

    Raises:
        RuntimeError: the server did not start.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.jsonl"
        path = os.pathsep.join([str(RECORDER), *filter(None, [os.environ.get("PYTHONPATH")])])
        (recording,) = record_in_turn(
            [planned],
            ARGUMENTS,
            variables={"PYTHONPATH": path, "STEP_RECORDER_FILE": str(file)},
            during=hogs_at_times() if disturbed else None,
        )
        if not file.exists():
            raise RuntimeError("no steps were recorded")
        rows = np.array([json.loads(line) for line in file.read_text().splitlines()])
    # Both processes use the same clock.
    begun_s = recording.begun_unix_ns / 1e9 - (time.time() - time.monotonic())
    ended_s = rows[:, 0] - begun_s
    work = np.column_stack([np.ones(len(rows)), rows[:, 3:], rows[:, 3] > 0])
    samples = samples_of(table_of(EngineSample, recording.samples))
    at_s = (samples.at_unix_ns - recording.begun_unix_ns) / 1e9
    reports = StepReports(
        starts_s=at_s,
        work=np.stack([samples.rises(name) for name in WORK], axis=1),
        busy_s=samples.rises("busy_s_total"),
        stall_s=samples.rises("stall_s_total"),
        coefficients=np.stack([samples.number(name) for name in COEFFICIENTS], axis=1),
        error_ratio=samples.number("step_model_error_ratio"),
    )
    return StepFitRun(
        at_s, reports, SingleSteps(ended_s, rows[:, 1] - rows[:, 2], work), rows[:, 2], load
    )


def _between(reports: StepReports, at_s: np.ndarray, low_s: float, high_s: float) -> StepReports:
    chosen = (at_s >= low_s) & (at_s < high_s)
    return StepReports(
        **{name: getattr(reports, name)[chosen] for name in StepReports.__dataclass_fields__}
    )


def table(run: StepFitRun, seconds: float) -> list[str]:
    """Return the lines of one run."""
    middle_s = WARM_S + seconds / 2
    ended_s = run.steps.ended_s
    first = (ended_s >= WARM_S) & (ended_s < middle_s)
    second = (ended_s >= middle_s) & (ended_s < WARM_S + seconds)
    later = run.steps.select(second)
    lines = [
        f"{int(first.sum())} steps to fit, {int(second.sum())} held out, busy"
        f" {later.worked_s.sum() / (seconds / 2):.0%}, stalls"
        f" {run.stall_s[second].sum() / (seconds / 2):.1%} of the time",
        f"{'held out':30}{'busy time':>11}{'at pace':>11}{'one step':>11}{'R²':>9}"
        + "".join(f"{name:>11}" for name in ("γ ms", "α µs", "κ ns", "β ns", "δ µs", "λ ms")),
    ]
    reports = _between(run.reports, run.at_s, WARM_S, middle_s)
    for name, found in all_fits(reports, run.steps.select(first)).items():
        off = errors(found, later)
        values = found * (1e3, 1e6, 1e9, 1e9, 1e6, 1e3)
        lines.append(
            f"{name:30}{off.busy:11.1%}{off.paced:11.1%}{off.step:11.1%}{off.r_squared:9.3f}"
            + "".join(f"{value:11.3g}" for value in values)
        )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Record both runs, fit the step model, and print the errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=180.0, help="seconds recorded per run")
    parser.add_argument("--rate", type=float, default=3.0, help="requests/s")
    parser.add_argument("--seed", type=int, default=3, help="seed of the arrivals and lengths")
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder to store the recordings; recordings in it are used again. Use only your own"
        " files: they are unpickled.",
    )
    arguments = parser.parse_args(words)
    try:
        ensure()
    except ProgramUnavailableError as reason:
        print(reason, file=sys.stderr)
        return 2
    planned = calls(arguments.seconds, arguments.rate, arguments.seed)
    for name, disturbed in (("quiet", False), ("disturbed", True)):
        kept = None if arguments.keep is None else arguments.keep / f"{name}.pickle"
        if kept is not None and kept.exists():
            run = pickle.loads(kept.read_bytes())
        else:
            run = served(planned, disturbed)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(pickle.dumps(run))
        print(f"\n{name} run, {len(planned)} requests, load average {run.load:.1f} before it")
        print("\n".join(table(run, arguments.seconds)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
