"""The shell commands that install missing packages. If Tailspan runs from a source folder, they
install from that folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


class MissingExtra(Exception):  # noqa: N818 -- the name states the condition
    """A library of an optional extra is not installed. The message contains the command."""


def install_plugin(root: Path = ROOT) -> str:
    """The command that installs the plugin in vLLM's environment."""
    source = root / "instrumentation"
    if (source / "pyproject.toml").is_file():
        return f"pip install {source}"
    return "pip install ./instrumentation   # in Tailspan's source folder"


def install_extra(extra: str, root: Path = ROOT) -> str:
    """The command that installs an extra in Tailspan's environment."""
    if (root / "pyproject.toml").is_file():
        return f"pip install -c {root / 'constraints.txt'} '{root}[{extra}]'"
    return f"pip install 'tailspan[{extra}]'"


def require(module: str, extra: str, what: str) -> None:
    """Check that a library of an optional extra is installed.

    Raises:
        MissingExtra: the library is not installed.
    """
    if find_spec(module) is None:
        raise MissingExtra(f"{what} needs the extra {extra}: {install_extra(extra)}")
