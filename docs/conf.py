"""Sphinx's configuration of the documentation site (`make docs`).

The source folder is the repository, so that the parts' READMEs are also pages of the site, and
links work both here and in a repository browser.
"""

import click
from sphinx.application import Sphinx

project = "Tailspan"
extensions = ["myst_parser", "sphinx_click"]
root_doc = "docs/index"
include_patterns = ["*.md", "*/README.md", "*/gpus/README.md", "docs/**"]
exclude_patterns = [".*", "docs/dashboards/**", "tests/**", "build/**", "var/**"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Tailspan"


def setup(app: Sphinx) -> None:
    """Show the commands' help literally, without Markdown's meaning of `*`."""
    for part in ("description", "options", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _literal)


def _literal(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    lines[:] = [line.replace("*", r"\*") for line in lines]
