"""Check the GPUs of this machine, and the GPU readers of a running Tailspan."""

import asyncio
from collections.abc import Iterator
from typing import Final

from cli.checks.findings import CheckFinding
from cli.checks.newest_data import query_newest_data
from cli.checks.own_metrics import own_series
from cli.render.gpus import missing_by_reason, reasons
from server import http_check
from server.client_access import OPEN, ClientAccess
from server.gpu_setup import GpuSetup
from telemetry.printable import printable

_WIDEST: Final = 400
_NAMED: Final = 5
LOOKBACK_NS: Final = 600 * 10**9
_DMESG: Final = (
    "dmesg has the details (Xid); drain the machine, stop tailspan on it, then run nvidia-smi"
    " --gpu-reset, or reboot"
)
_MEND: Final = {
    "no_permission": "allow this user or container to use the GPU: docker --gpus all,"
    " runtimeClassName: nvidia, or the group of /dev/nvidia* or /dev/kfd",
    "version_mismatch": (
        "the versions of library and driver differ, for example after an update: reboot"
    ),
    "old_driver": "the driver is too old to report this value; try a dcgm-exporter: --dcgm",
    "timeout": f"the driver hangs: {_DMESG}",
    "lost": _DMESG,
    "needs_reset": _DMESG,
    "no_power": "attach the GPU's power cables",
    "shut": "if the dcgm-exporter requires a token: --dcgm-token-file; if its certificate is signed"
    " by a private authority: --dcgm-ca",
}
_ELSE: Final = "run nvidia-smi or amd-smi for details"


def local(setup: GpuSetup | None = None) -> Iterator[CheckFinding]:
    """Check which values the GPUs report, and why other values are missing."""
    from cli.commands.gpus import look
    from collector.gpus.reader import MEASURED

    samples, states = asyncio.run(look(setup or GpuSetup(local=True)))
    for state in states:
        if state.up is False and state.absence is not None:
            why = state.absence.why
            found = printable(f"{state.name}: {state.absence}", _WIDEST)
            yield CheckFinding("gpus", False, found, _MEND.get(why, _ELSE))
        for what, absence in state.lost.items():
            found = printable(f"{state.name}: {what}: {absence}", _WIDEST)
            yield CheckFinding("gpus", False, found, _MEND.get(absence.why, _ELSE))
    for gpu in (gpu for state in states for gpu in state.gpus):
        about = printable(f"{gpu.model_name or 'GPU'} {gpu.gpu} ({gpu.source})", _WIDEST)
        reported = f"{about} reports {len(gpu.values)} of {len(MEASURED) - 1} values"
        missing = missing_by_reason(gpu)
        if missing:
            cannot = printable("; ".join(missing), _WIDEST)
            yield CheckFinding("gpus", None, f"{reported}; not {cannot}")
        else:
            yield CheckFinding("gpus", True, reported)
    if not samples and not any(state.up is False or state.lost for state in states):
        yield CheckFinding("gpus", True, f"none here. {reasons(states)}")


def owners(url: str | None) -> Iterator[CheckFinding]:
    """Check that each GPU that reported recently is assigned to an engine."""
    from analysis.replica_checks import gpu_owners

    found = query_newest_data(url, lambda engine, newest: gpu_owners(engine, newest, LOOKBACK_NS))
    if found is None or not found.replicas:
        return
    replicas, strangers = found
    named = ", ".join(replicas[:_NAMED])
    more = f" and {len(replicas) - _NAMED} more" if len(replicas) > _NAMED else ""
    machines: dict[str, list[str]] = {}
    for replica, gpu in sorted(strangers):
        machines.setdefault(replica, []).append(gpu)
    for replica, gpus in machines.items():
        yield CheckFinding(
            "whose GPU",
            None,
            printable(
                f"{', '.join(gpus)}: assigned to {replica}, but no engine has this name, so no"
                " request and no bill includes its samples",
                _WIDEST,
            ),
            printable(
                "if an engine runs on this GPU, assign the GPU in the command that samples it"
                " (tailspan up, or tailspan gpus --endpoint …):"
                f" --gpu-replica '{gpus[0]}=REPLICA', where REPLICA is {named}{more},"
                " or with --dcgm-replica for a dcgm-exporter. Tailspan detects the replica itself"
                " if it sees the server's processes, which requires root or CAP_SYS_PTRACE, and"
                " the host's process namespace",
                2 * _WIDEST,
            ),
        )


def readers(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Check that each GPU reader of a running Tailspan works."""
    samples = own_series(host, port, access, "tailspan_gpu_reader_")
    failures: dict[str, list[str]] = {}
    for sample in samples:
        if sample.name == "tailspan_gpu_reader_failures_total":
            counted = f"{sample.value:.0f} {sample.labels.get('reason')}"
            failures.setdefault(sample.labels.get("reader", ""), []).append(counted)
    for sample in samples:
        if sample.name != "tailspan_gpu_reader_up":
            continue
        name = sample.labels.get("reader", "")
        shown = printable(name, http_check.WIDEST_WHY)
        if sample.value:
            yield CheckFinding("GPU reader", True, f"{shown} is up")
        else:
            why = printable(", ".join(failures.get(name, [])), http_check.WIDEST_WHY)
            found = f"{shown} reports no values; errors since the start: {why}"
            shut = any(each.endswith(" shut") for each in failures.get(name, []))
            mend = _MEND["shut"] if shut else "the log of `tailspan up` has the details"
            yield CheckFinding("GPU reader", False, found, mend)
