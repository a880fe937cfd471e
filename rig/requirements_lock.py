"""Write the list of packages that the container image installs, with the hash of each file.

    python -m rig.requirements_lock deploy/requirements.lock

For each architecture, pip selects the files for the Python of the image. It uses the tested
versions in constraints.txt. The build of the image configures the download address.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = "3.12"
ARCHITECTURES: Final = ("x86_64", "aarch64")
TAGS: Final = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
"""Platform tags of Debian 12, on which the image is based. Older tags are listed too, because pip
does not derive them from newer tags."""
BUILD: Final = ("hatchling",)
"""Packages that build Tailspan's own wheels."""

HEADER: Final = """\
# What the container image installs: names, versions, and the hashes of the wheels for x86_64 and
# aarch64. Written by python -m rig.requirements_lock; do not edit.
"""


def needed() -> list[str]:
    """The requirements of tailspan and tailspan-vllm, with all optional dependencies that users can
    install."""
    application, plugin = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in (ROOT, ROOT / "instrumentation")
    )
    extras = application["optional-dependencies"]
    chosen = re.findall(r"[\w-]+", extras["all"][0].partition("[")[2])
    found = [
        *application["dependencies"],
        *plugin["dependencies"],
        *(each for extra in chosen for each in extras[extra]),
    ]
    return sorted({*(each for each in found if not each.startswith("tailspan")), *BUILD})


def resolved(architecture: str) -> dict[str, tuple[str, str]]:
    """For an architecture, the version and the hash of each package."""
    platforms = [f"--platform={tag}_{architecture}" for tag in TAGS]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"),
            *("--ignore-installed", "--only-binary=:all:", "--target", "unused"),
            *("--implementation=cp", f"--python-version={PYTHON}", *platforms),
            *("--constraint", str(ROOT / "constraints.txt"), *needed()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = {}
    for each in json.loads(done.stdout)["install"]:
        name = re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower()
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        found[name] = (each["metadata"]["version"], digest)
    return found


def text() -> str:
    """The content of the file."""
    versions: dict[str, str] = {}
    hashes: dict[str, set[str]] = {}
    for architecture in ARCHITECTURES:
        for name, (version, digest) in resolved(architecture).items():
            versions[name] = version
            hashes.setdefault(name, set()).add(digest)
    lines = []
    for name in sorted(versions):
        digests = " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(hashes[name]))
        lines.append(f"{name}=={versions[name]} \\\n{digests}\n")
    return HEADER + "".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
