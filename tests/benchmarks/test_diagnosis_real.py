from types import SimpleNamespace

import pytest

from benchmarks import diagnosis_real


def test_recordings_exist_until_the_true_shares_are_computed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `--keep`, the recordings are in a temporary folder."""
    monkeypatch.setattr("sys.argv", ["diagnosis_real.py", "--shares"])
    monkeypatch.setattr(diagnosis_real, "recorded", lambda *given: [given[-1]])
    found = SimpleNamespace(right=True)
    monkeypatch.setattr(diagnosis_real, "evaluate_explanation", lambda *_: found)
    monkeypatch.setattr(diagnosis_real, "line", lambda _: "the line of the fault")
    monkeypatch.setattr(diagnosis_real, "summary", lambda _: "the summary")
    monkeypatch.setattr(
        diagnosis_real, "shares_summary", lambda cases, _: [f"exists: {cases[0].is_dir()}"]
    )
    assert diagnosis_real.main() == 0
    assert "exists: True" in capsys.readouterr().out
