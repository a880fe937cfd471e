"""Sphinx's configuration of the documentation site (`make docs`).

The source folder is the repository, so that each component's README is a page of the site, and
links work both on the site and in a repository browser.
"""

import click
from sphinx.application import Sphinx

project = "Tailspan"
extensions = ["myst_parser", "sphinx_click"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "*/README.md",
    "*/gpus/README.md",
    "*/counterfactual/README.md",
    "*/compare/README.md",
    "*/budget/README.md",
    "*/joined/README.md",
    "*/api/README.md",
    "docs/**",
]
exclude_patterns = [".*", "docs/dashboards/**", "tests/**", "build/**", "var/**"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Tailspan"


def setup(app: Sphinx) -> None:
    """Show the commands' help literally, because Markdown would treat `*` as emphasis."""
    for part in ("description", "options", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _literal)


def _literal(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    lines[:] = [line.replace("*", r"\*") for line in lines]
