from pathlib import Path

import pytest

from rig.contract.__main__ import DOCS, main
from rig.install import ENVIRONMENT


def test_a_source_without_the_hooks_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline stops at exit status 1."""
    (tmp_path / "vllm").mkdir()
    assert main(["--tree", str(tmp_path)]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_a_source_that_is_no_python_is_not_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What could not be read was not checked."""
    module = tmp_path / "vllm/v1/request.py"
    module.parent.mkdir(parents=True)
    module.write_text("def :")
    assert main(["--tree", str(tmp_path)]) == 2
    assert "vllm/v1/request.py" in capsys.readouterr().err


def test_a_folder_without_vllm_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said in a sentence, with what was given."""
    assert main(["--tree", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_version_that_is_not_in_the_cache_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offline, nothing is fetched; and the docs stay as they are."""
    before = DOCS.read_bytes()
    assert main(["--offline", "--cache", str(tmp_path), "--versions", "0.12"]) == 2
    assert "vLLM 0.12: no source in the cache." in capsys.readouterr().err
    assert DOCS.read_bytes() == before


def test_a_version_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, with what was given."""
    with pytest.raises(SystemExit) as left:
        main(["--versions", "twelve"])
    assert left.value.code == 2
    assert "twelve" in capsys.readouterr().err


@pytest.mark.real
def test_the_installed_vllm_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    """The vLLM of the rig has every hook that is required."""
    found = next(ENVIRONMENT.glob("lib/python3*/site-packages/vllm"), None)
    if found is None:
        pytest.skip("no vLLM is installed here; make vllm installs one")
    status = main(["--tree", str(found.parent)])
    assert status == 0, capsys.readouterr().out
