"""Prevent the import of pandas.

pyarrow imports pandas, if it is installed, in the first `pyarrow.array(…)` of a process. Only
Streamlit needs pandas. The import takes half a second of CPU time and 55 MB of memory (pandas 3.1,
pyarrow 26, Python 3.11).
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this process does not need pandas", name=fullname)
        return None


def prevent() -> None:
    """Prevent the import of pandas in this process from now on. Do not call this in a process that
    runs Streamlit."""
    sys.meta_path.insert(0, _WithoutPandas())
