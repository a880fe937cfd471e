"""The READMEs do not outlive what they speak of."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("docs/*/*.md"))
    if not page.relative_to(ROOT).parts[0].startswith(".")
)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
VARIABLE = re.compile(r"\b(?:OTEL|TAILSPAN)_[A-Z_]+\b")


def _links(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A file that was moved or dropped takes its links along."""
    dead = [target for target in _links(page) if not (page.parent / target).exists()]
    assert not dead


def test_every_variable_that_is_read_is_explained() -> None:
    """A setting that nobody can find is none."""
    package = ROOT / "instrumentation"
    read = set(VARIABLE.findall((package / "tailspan_vllm" / "settings.py").read_text()))
    told = set(VARIABLE.findall((package / "README.md").read_text()))
    assert read <= told


def test_every_command_is_shown() -> None:
    """The README has an example of each verb."""
    from cli.main import tailspan

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in tailspan.commands if f"$ tailspan {verb}" not in readme] == []
