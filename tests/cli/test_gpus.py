import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest
from click.testing import CliRunner, Result
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict

import cli.commands.gpus
from cli import foreground, gpu_agent
from cli.checks import gpus as gpu_checks
from cli.main import tailspan
from cli.render import gpus as gpu_tables
from collector.gpus import amd_smi
from collector.gpus.configured_owners import configured_owners_of
from collector.gpus.reader import Absence, AbsenceReason, ReaderError
from collector.gpus.sampler import ReaderState
from collector.normalise.engine_points import normalise_points
from collector.server import Collector
from collector.testing import MemorySink, running
from exporters.forwarding.forwarder import Forwarder
from server import children, stack
from server.gpu_setup import GpuSetup
from telemetry.gpus import GpuSample
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import H100, Card, Driver

Stranger = Callable[..., str]
HttpAnswer = Callable[..., bytes]


install = gpus_of_tests.install
Install = Callable[..., Driver]
DCGM = (
    'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",modelName="NVIDIA A100",Hostname="gpu-host",'
    'pod="chat-0"} 301.25\n'
)


@pytest.fixture(autouse=True)
def _no_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide AMD GPUs of the machine that runs the tests."""

    def load() -> None:
        raise ReaderError(Absence(AbsenceReason.NO_PACKAGE))

    monkeypatch.setattr(amd_smi, "load", load)
    # The fake driver can be read more often than once per second.
    monkeypatch.setattr(cli.commands.gpus, "SAMPLE_GAP_S", 0.11)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)


def gpus(*words: str) -> Result:
    return CliRunner().invoke(tailspan, ["gpus", *words], catch_exceptions=False)


def test_a_table_shows_what_each_gpu_does(install: Install) -> None:
    install(Card(processes=[os.getpid()]), Card("GPU-2", "NVIDIA L4", supports_gpm=False))
    shown = gpus("--gpu-replica", "1=embed-0")
    assert shown.exit_code == 0, shown.output
    header, first, last, *why = shown.stdout.splitlines()
    assert re.split(r"\s{2,}", header)[:6] == [
        "gpu", "model", "replica", "throttled by", "DRAM %", "DRAM GB/s",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", first)[:2] == ["GPU-1", H100]
    assert re.split(r"\s{2,}", first)[3:10] == [
        "nothing", "62.5", "2,095", "90.0", "25.0", "70", "80",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", last)[:6] == ["GPU-2", "NVIDIA L4", "embed-0", "nothing", "-", "-"]
    assert why == [
        "GPU-2 does not report dram_bandwidth_bytes_per_s, dram_bandwidth_ratio,"
        " nvlink_rx_bytes_per_s, nvlink_tx_bytes_per_s, pcie_rx_bytes_per_s, pcie_tx_bytes_per_s,"
        " sm_active_ratio, tensor_active_ratio: not_supported (older than Hopper; a dcgm-exporter"
        " may report it)"
    ]


def test_json_has_an_object_a_gpu(install: Install) -> None:
    install(Card(processes=[2**30], supports_gpm=False))
    [line] = gpus("--format", "json").stdout.splitlines()
    shown = json.loads(line)
    assert shown["gpu"] == "GPU-1"
    assert (shown["source"], shown["power_w"], shown["processes"]) == ("nvml", 512.5, [2**30])
    assert shown["foreign_processes"] == 1
    assert shown["dram_bandwidth_ratio"] is None
    assert shown["absent"]["dram_bandwidth_ratio"] == {
        "why": "not_supported",
        "detail": "older than Hopper; a dcgm-exporter may report it",
    }
    assert abs(shown["at"] - time.time()) < 60


def test_without_a_gpu_it_gives_the_reason(nowhere: None) -> None:
    shown = gpus()
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == (
        "No GPU reports values. nvml: no_library (NVML: library not found); amd_smi: no_package.\n"
    )
    silent = gpus("--format", "json")
    assert (silent.exit_code, silent.stdout) == (0, "")


def test_a_failing_driver_exits_2_with_the_reason(install: Install) -> None:
    install(Card()).failing["nvmlInitWithFlags"] = pynvml.NVML_ERROR_UNKNOWN
    shown = gpus()
    assert shown.exit_code == 2
    assert "No GPU reports values. nvml: " in shown.stdout


def test_a_lost_gpu_is_reported_on_stderr(install: Install) -> None:
    lost = {"nvmlDeviceGetUUID": pynvml.NVML_ERROR_GPU_IS_LOST}
    install(Card(failing=lost), Card("GPU-2"))
    shown = gpus()
    assert shown.stderr == "nvml: GPU 0: lost (NVML: gpu is lost)\n"
    assert (shown.exit_code, "GPU-2" in shown.stdout) == (0, True)
    install(Card(failing=lost))
    alone = gpus()
    assert (alone.exit_code, alone.stderr) == (2, "nvml: GPU 0: lost (NVML: gpu is lost)\n")


def test_an_exporters_gpus_are_shown(
    nowhere: None, stranger: Stranger, http_answer: HttpAnswer
) -> None:
    url = stranger({"/metrics": http_answer(body=DCGM)})
    [line] = gpus(
        "--dcgm", url, "--dcgm-replica", "{pod}:8000", "--format=json"
    ).stdout.splitlines()
    shown = json.loads(line)
    assert (shown["replica"], shown["gpu"], shown["power_w"]) == ("chat-0:8000", "GPU-a", 301.25)
    only = gpus("--gpus=off", "--dcgm", "http://127.0.0.1:1")
    assert only.exit_code == 2
    assert "unreachable" in only.output


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["up", "--gpus", "some"], ["--gpus", "some", "auto"]),
        (["collect", "--dcgm", "gpu-host:9400"], ["--dcgm", "gpu-host:9400", "http://HOST:PORT"]),
        (["gpus", "--dcgm-every", "500ms"], ["--dcgm-every", "500ms", "1s to 30s"]),
        (["gpus", "--gpus", "off", "--dcgm-every", "60s"], ["--dcgm-every", "60s", "1s to 30s"]),
        (["gpus", "--gpu-replica", "0"], ["--gpu-replica", "'0'", "GPU=REPLICA"]),
        (["up", "--gpu-replica", "0=a", "--gpu-replica", "0=b"], ["--gpu-replica", "already"]),
        (["gpus", "--dcgm-replica", "{node}"], ["--dcgm-replica", "'node'", "namespace", "pod"]),
        (["gpus", "--gpus", "off"], ["no GPU to sample"]),
        (["gpus", "--endpoint", "collector:4318"], ["collector:4318", "http://HOST:PORT"]),
        (["gpus", "--endpoint", "http://me:s3cret@c:1"], ["--endpoint", "must not contain an @"]),
    ],
)
def test_a_wrong_option_is_reported_with_its_value_and_the_allowed_ones(
    words: list[str], shown: list[str]
) -> None:
    done = CliRunner().invoke(tailspan, words)
    assert done.exit_code == 2
    assert all(part in done.output for part in shown), done.output
    assert "s3cret" not in done.output
    assert all(part in done.output for part in shown), done.output
    assert "s3cret" not in done.output


@pytest.mark.parametrize(
    ("words", "local", "places"),
    [
        ([], True, []),
        (["--gpus", "off", "--dcgm", "http://h:9400"], False, ["http://h:9400"]),
        (["--simulate"], False, []),
        (["collect"], True, []),
    ],
)
def test_up_samples_the_chosen_gpus(
    url: str, monkeypatch: pytest.MonkeyPatch, words: list[str], local: bool, places: list[str]
) -> None:
    given: dict[str, Any] = {}

    async def run(_stack: object, *, vllm: str | None) -> None:
        """Do nothing."""

    monkeypatch.setattr(stack, "Stack", lambda *_, **about: given.update(about))
    monkeypatch.setattr(foreground, "run", run)
    verb, *rest = words if "collect" in words else ["up", *words]
    line = [verb, "--database", url, "--gpu-replica", "0=chat-0", *rest]
    done = CliRunner().invoke(tailspan, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    setup: GpuSetup = given["gpus"]
    assert (setup.local, [each.name for each in setup.dcgm]) == (local, places)
    assert setup.configured.by_gpu == {"0": "chat-0"}


class Post:
    def __init__(self, outcome: ExportResponse) -> None:
        self.outcome = outcome
        self.bodies: list[bytes] = []

    def __call__(self, path: str, body: bytes, content_type: str) -> ExportResponse:
        assert (path, content_type) == ("/v1/metrics", "application/x-protobuf")
        self.bodies.append(body)
        return self.outcome


def sampled(post: Post, monkeypatch: pytest.MonkeyPatch, capsys: Any, **about: Any) -> str:
    """Sample until one message was offered, then stop; return the output."""
    forwarder = Forwarder(post, **about)

    async def run() -> None:
        stop = asyncio.Event()
        monkeypatch.setattr(gpu_agent, "stop_on_signals", lambda _at_once: stop)
        offer = forwarder.offer

        def offering(path: str, body: bytes, is_json: bool) -> None:
            offer(path, body, is_json)
            stop.set()

        monkeypatch.setattr(forwarder, "offer", offering)
        setup = GpuSetup(local=True, configured=configured_owners_of(["*=chat-0"]))
        async with asyncio.timeout(30):
            await gpu_agent.run(setup, forwarder, "http://collector:4318")

    asyncio.run(run())
    printed: str = capsys.readouterr().out
    return printed


def test_samples_are_sent_until_the_stop(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    install(Card())
    post = Post(ExportResponse(ExportVerdict.ACCEPTED))
    printed = sampled(post, monkeypatch, capsys)
    assert len(post.bodies) == 1
    assert printed.splitlines() == [
        "Sampling GPUs for http://collector:4318. Ctrl-C stops it.",
        "1 GPU samples in 1 messages sent; none dropped.",
    ]


def test_samples_are_collected_after_the_first_message() -> None:
    post = Post(ExportResponse(ExportVerdict.ACCEPTED))
    forwarder = Forwarder(post)
    batches = gpu_agent.Batches(forwarder)
    began = time.time_ns() - 10**9
    taken = [
        GpuSample(replica="chat-0", gpu="GPU-1", at_unix_ns=began + n, power_w=300.0)
        for n in range(600)
    ]

    async def run() -> None:
        await batches.keep(taken[:1])
        await batches.keep(taken[1:2])
        await batches.keep(taken[2:3])
        batches.send()
        batches.send()
        await batches.keep(taken[3:])

    asyncio.run(run())
    forwarder.start()
    forwarder.close(10)
    rows = [normalise_points(body, time.time_ns()).gpus for body in post.bodies]
    assert [len(each) for each in rows] == [1, 2, 597]
    assert [each.at_unix_ns for several in rows for each in several] == [
        each.at_unix_ns for each in taken
    ]
    assert (batches.samples, batches.messages) == (600, 3)


@pytest.mark.parametrize(
    ("outcome", "room", "words"),
    [
        (ExportResponse(ExportVerdict.REFUSED), 2**20, "1 were refused"),
        (
            ExportResponse(ExportVerdict.UNREACHABLE),
            2**20,
            "1 expired before the collector accepted messages",
        ),
        (ExportResponse(ExportVerdict.ACCEPTED), 1, "1 did not fit in the queue"),
    ],
)
def test_dropped_samples_are_counted(
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    outcome: ExportResponse,
    room: int,
    words: str,
) -> None:
    install(Card())
    printed = sampled(Post(outcome), monkeypatch, capsys, queued_bytes=room)
    assert printed.splitlines()[-1] == f"1 GPU samples in 0 messages sent; dropped: {words}."


@pytest.mark.parametrize(
    ("states", "printed"),
    [
        ([], "There is no GPU here. Tailspan checks again every minute."),
        ([ReaderState("nvml", up=True)], "GPUs: 0 by nvml."),
        (
            [ReaderState("nvml", up=False, absence=Absence(AbsenceReason.TIMEOUT))],
            "GPUs: none; nvml is down: timeout.",
        ),
    ],
)
def test_the_state_is_one_sentence(states: Sequence[ReaderState], printed: str) -> None:
    assert gpu_tables.state_sentence(states) == printed


@pytest.mark.parametrize(
    ("is_rejecting", "sent", "queued_bytes", "then", "printed"),
    [
        (False, 5, 0, False, None),
        (False, 5, 900, False, None),
        (False, 0, 0, False, None),
        (False, 0, 900, True, "does not accept messages"),
        (True, 0, 1_800, True, None),
        (True, 1, 900, False, "accepts messages again"),
    ],
)
def test_a_lost_collector_and_its_return_are_reported_once(
    is_rejecting: bool, sent: int, queued_bytes: int, then: bool, printed: str | None
) -> None:
    now, news = gpu_agent.acceptance_change(is_rejecting, sent, queued_bytes)
    assert now is then
    assert (news is None) == (printed is None)
    assert printed is None or printed in str(news)


def test_samples_that_wait_at_the_end_are_dropped() -> None:
    results = {"sent": 2, "expired": 0, "full": 0, "refused": 0}
    printed = gpu_agent.summary(48, 6, results)
    assert printed == "48 GPU samples in 2 messages sent; dropped: 4 still waited."


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_agent_sends_to_a_collector_and_ends_at_ctrl_c(
    stranger: Stranger, http_answer: HttpAnswer, tmp_path: Path
) -> None:
    sink = MemorySink()
    url = stranger({"/metrics": http_answer(body=DCGM)})
    with running(Collector(sink, grpc_port=0, http_port=0)) as collector:
        command = children.own_command(
            "gpus", "--gpus=off", f"--dcgm={url}", "--dcgm-every=1s",
            f"--endpoint=http://127.0.0.1:{collector.http_port}",
        )  # fmt: skip
        agent = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert sink.submitted.acquire(timeout=60)
        agent.send_signal(signal.SIGINT)
        printed, _ = agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert re.search(r"\d+ GPU samples in \d+ messages sent; none dropped\.\n$", printed)
    assert {(each.replica, each.gpu, each.power_w) for each in sink.gpus} == {
        ("chat-0", "GPU-a", 301.25)
    }


def test_the_doctor_lists_what_a_gpu_does_not_report(install: Install) -> None:
    """A value that a GPU does not report is no failure."""
    install(Card(), Card("GPU-2", "NVIDIA L4", supports_gpm=False))
    whole, partly = gpu_checks.local()
    assert (whole.ok, whole.mend) == (True, None)
    assert whole.detail == f"{H100} GPU-1 (nvml) reports 16 of 16 values"
    assert partly.ok is None
    assert "reports 8 of 16 values; not dram_bandwidth_bytes_per_s, dram" in partly.detail
    assert "older than Hopper" in partly.detail


def test_the_doctor_is_content_without_a_gpu(nowhere: None) -> None:
    [found] = gpu_checks.local()
    assert (found.check, found.ok, found.mend) == ("gpus", True, None)
    assert "nvml: no_library" in found.detail


@pytest.mark.parametrize(
    ("function", "code", "mend"),
    [
        ("nvmlInitWithFlags", "NVML_ERROR_NO_PERMISSION", "docker --gpus all"),
        ("nvmlInitWithFlags", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "reboot"),
        ("nvmlDeviceGetUUID", "NVML_ERROR_GPU_IS_LOST", "dmesg"),
        ("nvmlDeviceGetCount_v2", "NVML_ERROR_UNKNOWN", "nvidia-smi"),
    ],
)
def test_the_doctor_has_a_remedy_for_each_failure(
    install: Install, function: str, code: str, mend: str
) -> None:
    install(Card()).failing[function] = getattr(pynvml, code)
    [found] = gpu_checks.local()
    assert found.ok is False
    assert mend in str(found.mend)


def test_the_doctor_asks_a_running_tailspan_for_its_readers(
    exported: Callable[[str], tuple[str, int]],
) -> None:
    shown = (
        'tailspan_gpu_reader_up{reader="nvml"} 1\n'
        'tailspan_gpu_reader_up{reader="http://x\x1b[31m"} 0\n'
        'tailspan_gpu_reader_failures_total{reader="http://x\x1b[31m",reason="timeout"} 4\n'
    )
    for body, expected in ((shown, 2), ("", 0), ("tailspan_gpu_reader_up{", 0)):
        found = list(gpu_checks.readers(*exported(body)))
        assert len(found) == expected
        if found:
            up, down = found
            assert (up.ok, up.detail) == (True, "nvml is up")
            assert down.ok is False
            assert "4 timeout" in down.detail
            assert "\x1b" not in down.detail
