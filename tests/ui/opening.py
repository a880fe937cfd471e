"""The explorer as Streamlit runs it, without a browser: opened by a fixture, read by these."""

from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[2] / "ui" / "app.py"

Open = Callable[..., AppTest]
"""Takes a database's URL and an address's parameters."""


def markup(test: AppTest) -> str:
    """All HTML on the page but its style and its script."""
    said = (element.proto.body for element in test.get("html"))
    return "\n".join(each for each in said if not each.startswith(("<style", "<i class='unseen'")))
