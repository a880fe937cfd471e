from importlib import import_module
from pathlib import Path

import pytest

import diagnosis.causes
from diagnosis.causes.registry import DETECTORS, SUMMARIES


def test_every_detector_of_the_folder_is_asked() -> None:
    modules = [path.stem for path in Path(diagnosis.causes.__path__[0]).glob("[a-z]*.py")]
    ids = [getattr(import_module(f"diagnosis.causes.{name}"), "ID", None) for name in modules]
    assert sorted(filter(None, ids)) == sorted(DETECTORS)


@pytest.mark.parametrize("cause", DETECTORS)
def test_every_detector_is_named_after_its_id_and_has_separate_tests(cause: str) -> None:
    assert DETECTORS[cause].__module__ == f"diagnosis.causes.{cause}"
    assert (Path(__file__).parent / f"test_{cause}.py").is_file()
    assert SUMMARIES[cause]
