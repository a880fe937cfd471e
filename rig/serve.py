"""`make vllm`: start a real vLLM on the CPU with the instrumentation, until Ctrl-C.

python -m rig.serve                                  port 8000, telemetry to localhost:4317
python -m rig.serve --port 8001 -- --max-num-seqs 4  arguments after -- are vLLM's
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rig.install import MODEL, PYTHON, ProgramUnavailableError, ensure

MODEL_NAME = "tiny"
START_LIMIT_S = 300

TINY_SERVER = (
    *(str(PYTHON), str(Path(__file__).with_name("forking_vllm.py")), "serve", str(MODEL)),
    *("--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager"),
    # In bfloat16 on a CPU with AMX, vLLM 0.32 fails with SIGILL if the first step has one token.
    *("--dtype", "float32"),
)

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def command(port: int, extra: Sequence[str] = (), server: Sequence[str] = ()) -> list[str]:
    """The command line of a server on `port`.

    Args:
        server: the command of another server, such as `vllm serve FOLDER`. If it is empty, the tiny
            model is served.
    """
    return [
        *(server or TINY_SERVER),
        *("--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *extra,
    ]


def environment(endpoint: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server that sends telemetry to `endpoint`. Variables in `given` take
    precedence."""
    return {**_QUIET, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **given}


def wait_until_healthy(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Wait for /health. Return whether it became healthy in time."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    return False


def empty_prefix_cache(port: int) -> None:
    """Empty a server's prefix cache. The server must run with `VLLM_SERVER_DEV_MODE=1`.

    Raises:
        urllib.error.HTTPError: the server refused.
    """
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/reset_prefix_cache", method="POST", data=b""
    )
    with urllib.request.urlopen(asked, timeout=10):
        pass


def stop(server: subprocess.Popen[bytes], limit_s: float = 30) -> None:
    """Ask the server to end. Kill the server if it does not end in time."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(limit_s)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def engine_cores(server: subprocess.Popen[bytes]) -> list[int]:
    """The ids of the server's processes that run an engine core."""
    return [process for process, line in _processes(server) if b"EngineCore" in line]


def front_ends(server: subprocess.Popen[bytes]) -> list[int]:
    """The ids of the server's processes that do not run an engine."""
    engines = (b"EngineCore", b"Worker")
    return [
        process for process, line in _processes(server) if not any(each in line for each in engines)
    ]


def _processes(server: subprocess.Popen[bytes]) -> Iterator[tuple[int, bytes]]:
    """The processes in the server's session, with their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (folder / "cmdline").read_bytes()
            group = os.getpgid(int(folder.name))
        except (OSError, ProcessLookupError):
            continue  # the process has ended
        if group == server.pid:
            yield int(folder.name), command_line


def main(arguments: Sequence[str]) -> int:
    """Install missing packages, start the server, and wait until it ends."""
    parser = argparse.ArgumentParser(
        prog="make vllm", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000, help="default 8000")
    parser.add_argument(
        "--endpoint",
        default="http://127.0.0.1:4317",
        help="where vLLM sends its telemetry (OTLP; default http://127.0.0.1:4317)",
    )
    parser.add_argument("vllm", nargs="*", help="after --: arguments for vLLM itself")
    options = parser.parse_args(arguments)
    try:
        ensure()
    except ProgramUnavailableError as reason:
        print(reason, file=sys.stderr)
        return 2
    log_path = PYTHON.parent.parent / f"vllm-{options.port}.log"
    print(f"  starting vLLM on port {options.port} (its log: {_short(log_path)}) …", flush=True)
    begun = time.monotonic()
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            command(options.port, options.vllm),
            env=environment(options.endpoint, os.environ),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if not wait_until_healthy(options.port, server):
            tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-12:])
            print(f"vLLM did not start on port {options.port}:\n{tail}", file=sys.stderr)
            return 2
        print(
            f"  ready after {time.monotonic() - begun:.0f} s; "
            f"telemetry goes to {options.endpoint}\n\n"
            f"  Try it:\n    curl http://127.0.0.1:{options.port}/v1/chat/completions "
            "-H 'content-type: application/json' \\\n"
            f'      -d \'{{"model": "{MODEL_NAME}", "max_tokens": 64, "ignore_eos": true, '
            '"messages": [{"role": "user", "content": "hello"}]}\'\n\n  Ctrl-C stops it.',
            flush=True,
        )
        return server.wait()
    except KeyboardInterrupt:
        print("\n  stopping vLLM …", flush=True)
        return 0
    finally:
        stop(server)


def _short(path: Path) -> str:
    return os.path.relpath(path)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
