"""Measure the difference between the latencies of the simulator and of a real vLLM, by phase.

    python benchmarks/simulator_fidelity.py [--seconds 60] [--rate 6]

A real server on this machine's CPU serves a Poisson load of random prompts. A simulated engine then
serves the same requests, with the step model and the arguments from the server's telemetry. The
durations of front end and delivery are constants that are not fitted.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from _recording import Planned, ServerRecording, record_in_turn  # type: ignore[import-not-found]

from replay.engine_config import EngineConfig  # needs the path inserted above
from replay.step_model import StepModel
from replay.trace_csv import TraceRow
from rig.install import ProgramUnavailableError, ensure
from rig.load import Call
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.workload import Tenant, Workload
from telemetry.engines import EngineSample
from telemetry.requests import PHASES, RequestTimeline
from telemetry.starts import read

COLUMNS = (*PHASES, "ttft_s", "itl_max_s", "tpot_s", "e2e_s")
WARM_S = 20.0
"""The seconds in which the step model is fitted. Later requests are compared."""

Floats = npt.NDArray[np.float64]


def ks(one: Floats, other: Floats) -> float:
    """The largest distance between two empirical distribution functions."""
    points = np.concatenate([one, other])
    below = [
        np.searchsorted(np.sort(each), points, side="right") / each.size for each in (one, other)
    ]
    return float(np.max(np.abs(below[0] - below[1])))


def wasserstein_s(one: Floats, other: Floats) -> float:
    """The mean distance between two distributions, quantile by quantile."""
    shares = (np.arange(1000) + 0.5) / 1000
    return float(np.mean(np.abs(np.quantile(one, shares) - np.quantile(other, shares))))


def calls(seconds: float, rate_per_s: float) -> Planned:
    """A Poisson load: send times, and random prompts without common prefixes."""
    draw = random.Random(1)
    planned, at_s = [], 0.0
    while (at_s := at_s + draw.expovariate(rate_per_s)) < WARM_S + seconds:
        length = min(int(draw.lognormvariate(5.3, 0.9)) + 8, 1800)
        prompt = "".join(draw.choices("abcdefgh ", k=length))
        planned.append((at_s, Call(chat=False, prompt=prompt, max_tokens=draw.randint(8, 96))))
    return planned


def engine_of(recording: ServerRecording) -> EngineConfig:
    """The simulated engine with the arguments and the step model of the real engine."""
    fitted = [sample for sample in recording.samples if sample.step_model_base_s is not None]
    if not fitted or not recording.starts:
        raise SystemExit("the server reported no step model or no start")
    last, arguments = fitted[-1], read(recording.starts[-1].arguments)

    def number(name: str, otherwise: int) -> int:
        value = arguments.get(name)
        return value if isinstance(value, int) else otherwise

    longest = number("model.max_model_len", 2048)
    return EngineConfig(
        max_model_len=longest,
        max_num_seqs=number("scheduler.max_num_seqs", 16),
        max_num_batched_tokens=number("scheduler.max_num_batched_tokens", 2048),
        num_gpu_blocks=max(number("cache.num_gpu_blocks", 4096), longest // 16 + 1),
        step=model_of(last),
        step_noise_ratio=min(last.step_model_error_ratio or 0.03, 0.5),
    )


def model_of(sample: EngineSample) -> StepModel:
    """The newest fitted coefficients."""
    return StepModel(
        base_s=sample.step_model_base_s or 0.0,
        prefill_token_s=sample.step_model_per_prefill_token_s or 0.0,
        prefill_pair_s=sample.step_model_per_prefill_attention_s or 0.0,
        context_token_s=sample.step_model_per_context_token_s or 0.0,
        sequence_s=sample.step_model_per_decode_s or 0.0,
        prefill_step_s=sample.step_model_per_prefill_step_s or 0.0,
    )


def simulated(rows: Sequence[RequestTimeline], engine: EngineConfig) -> list[RequestTimeline]:
    """The results of the same requests on the simulated engine."""
    first_ns = rows[0].received_unix_ns
    trace = tuple(
        TraceRow(
            (row.received_unix_ns - first_ns) / 1e9, row.prompt_tokens or 1, row.output_tokens or 1
        )
        for row in rows
    )
    workload = Workload(
        rate_per_s=1.0,
        trace=trace,
        tenants=(Tenant("all", 1.0),),
        abort_share=0.0,
        malformed_share=0.0,
    )
    return run(FleetConfig(replicas=1, workload=workload, engine=engine)).requests


def report(real: Sequence[RequestTimeline], made: Sequence[RequestTimeline]) -> None:
    """Print one line per phase and latency, in ms."""
    heads = ("real p50", "p95", "sim p50", "p95", "KS", "W1", "of mean")
    print(f"{'':12}" + "".join(f"{head:>10}" for head in heads))
    for column in COLUMNS:
        one, other = (
            np.array([value for row in rows if (value := getattr(row, column)) is not None])
            for rows in (real, made)
        )
        if not one.size or not other.size:
            continue
        line = f"{column:12}"
        off_s, mean_s = wasserstein_s(one, other), float(one.mean())
        for each in (one, other):
            line += "".join(f"{1e3 * float(np.quantile(each, q)):10.1f}" for q in (0.5, 0.95))
        print(f"{line}{ks(one, other):10.2f}{1e3 * off_s:10.1f}{off_s / mean_s:10.0%}")


def main() -> int:
    """Measure, simulate, and print the distances in ms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="compared; default 60")
    parser.add_argument("--rate", type=float, default=6.0, help="requests/s; default 6")
    arguments = parser.parse_args()
    try:
        ensure()
    except ProgramUnavailableError as reason:
        print(reason, file=sys.stderr)
        return 2
    (recording,) = record_in_turn([calls(arguments.seconds, arguments.rate)])
    engine = engine_of(recording)
    rows = sorted(recording.requests, key=lambda row: row.received_unix_ns)
    since_ns = rows[0].received_unix_ns + int(WARM_S * 1e9)
    real = [row for row in rows if row.received_unix_ns >= since_ns and row.decode_s is not None]
    step = engine.step
    print(
        f"{len(real)} requests; γ {step.base_s * 1e3:.2f} ms,"
        f" α {step.prefill_token_s * 1e6:.1f} µs,"
        f" κ {step.prefill_pair_s * 1e9:.1f} ns,"
        f" β {step.context_token_s * 1e6:.2f} µs,"
        f" δ {step.sequence_s * 1e6:.1f} µs, typical error {engine.step_noise_ratio:.0%};"
        " times in ms"
    )
    report(real, simulated(real, engine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
