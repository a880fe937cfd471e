from pathlib import Path

import pytest

from rig.contract.__main__ import DOCS, main
from rig.contract.sources import NoSourceError, open_index
from rig.contract.table import LAST
from rig.install import ENVIRONMENT


def test_missing_hooks_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vllm").mkdir()
    assert main(["--tree", str(tmp_path)]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_invalid_python_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "vllm/v1/request.py"
    module.parent.mkdir(parents=True)
    module.write_text("def :")
    assert main(["--tree", str(tmp_path)]) == 2
    assert "vllm/v1/request.py" in capsys.readouterr().err


def test_no_vllm_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tree", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_an_uncached_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = DOCS.read_bytes()
    assert main(["--offline", "--cache", str(tmp_path), "--versions", "0.12"]) == 2
    assert "vLLM 0.12: no source in the cache." in capsys.readouterr().err
    assert DOCS.read_bytes() == before


def test_an_invalid_version_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--versions", "twelve"])
    assert left.value.code == 2
    assert "twelve" in capsys.readouterr().err


@pytest.mark.real
def test_the_installed_vllm_fulfils_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = next(ENVIRONMENT.glob("lib/python3*/site-packages/vllm"), None)
    if found is None:
        pytest.skip("no vLLM is installed here; make vllm installs one")
    status = main(["--tree", str(found.parent)])
    assert status == 0, capsys.readouterr().out


@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*pkg_resources:DeprecationWarning")  # of pip's own modules
def test_the_newest_published_vllm_fulfils_the_contract(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The summary of the tests names a version that the table does not contain yet."""
    try:
        with open_index() as index:
            newest = index.releases()[-1]
    except NoSourceError as error:
        pytest.skip(str(error))
    status = main(["--versions", ".".join(map(str, newest.minor))])
    printed = capsys.readouterr()
    if status == 2:
        pytest.skip(printed.err)
    # A release of vLLM must not fail the tests of a commit that came before it.
    if newest.minor > LAST:
        pytest.xfail(f"not in docs/vllm-versions.md yet: {printed.out}")
    assert status == 0, printed.out
