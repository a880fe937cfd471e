from pathlib import Path

import pytest

from telemetry.installing import MissingExtra, install_extra, install_plugin, require


def test_the_source_folder_is_named_if_it_exists(tmp_path: Path) -> None:
    # Neither distribution is on PyPI.
    assert install_plugin(tmp_path).startswith("pip install ./instrumentation ")
    assert install_extra("explorer", tmp_path) == "pip install 'tailspan[explorer]'"
    (tmp_path / "instrumentation").mkdir()
    for folder in (tmp_path, tmp_path / "instrumentation"):
        (folder / "pyproject.toml").touch()
    assert install_plugin(tmp_path) == f"pip install {tmp_path}/instrumentation"
    assert install_extra("gpu", tmp_path).endswith(f"'{tmp_path}[gpu]'")


def test_a_missing_package_error_names_the_extra() -> None:
    require("json", "gpu", "tailspan gpus")
    with pytest.raises(MissingExtra, match=r"tailspan gpus needs the extra gpu: pip install .*gpu"):
        require("no_such_library", "gpu", "tailspan gpus")
