"""Whose GPUs are, as the user says."""

import pytest

from collector.gpus.configured_owners import Claims, checked_template, claims_of, filled
from tests.collector.gpus.making import of_dcgm, told


def test_a_gpu_goes_by_several_names_the_exact_one_first() -> None:
    """UUID, number, and all others."""
    claims = claims_of(["GPU-1=by-uuid", "1=by-number", "*=by-default"])
    assert claims.said(told("GPU-1", index=1)) == "by-uuid"
    assert claims.said(told("GPU-2", index=1)) == "by-number"
    assert claims.said(told("GPU-3", index=2)) == "by-default"
    assert claims.said(told("MIG-4")) == "by-default"
    assert Claims().said(told("GPU-1", index=1)) is None


def test_numbers_are_this_machines_and_an_exporters_go_by_host() -> None:
    """Two machines have a 0 each."""
    claims = claims_of(["0=here", "*=here", "there/0=yonder"])
    assert claims.said(of_dcgm(Hostname="there")) == "yonder"
    assert claims.said(of_dcgm(Hostname="elsewhere")) is None


def test_labels_make_a_name_beside_what_is_said() -> None:
    """A label that is not there makes none."""
    claims = claims_of([], "{namespace}/{pod}:8000")
    assert claims.labelled(of_dcgm(pod="chat-0", namespace="serving")) == "serving/chat-0:8000"
    assert claims.labelled(of_dcgm(pod="chat-0")) is None
    said = claims_of(["GPU-1=mine"])
    assert said.said(of_dcgm(pod="chat-0")) == "mine"
    gpu = of_dcgm("GPU-2", pod="chat-0")
    assert (said.said(gpu), said.labelled(gpu)) == (None, "chat-0")


@pytest.mark.parametrize("given", ["GPU-1", "=chat", "0=", " = "])
def test_a_malformed_claim_says_what_is_allowed(given: str) -> None:
    """With what was given."""
    with pytest.raises(ValueError, match="GPU=REPLICA, where GPU is a UUID"):
        claims_of([given])


def test_one_gpu_has_one_replica() -> None:
    """To say the same twice is no contradiction."""
    assert claims_of(["0=a", "0=a"]).by_gpu == {"0": "a"}
    with pytest.raises(ValueError, match="'0=b': 0 is a's already"):
        claims_of(["0=a", "0=b"])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{node}", "'node' is no label"),
        ("{pod!r}", "'pod' is no label"),
        ("{pod.__class__}", "'pod.__class__' is no label"),
        ("{0}", "'0' is no label"),
        ("{pod", "expected '}'"),
        ("chat", "names no label"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, words: str) -> None:
    """Before anything is sampled; it reaches nothing but labels."""
    with pytest.raises(ValueError, match=words) as told_:
        checked_template(template)
    assert "GPU_I_ID, GPU_I_PROFILE, Hostname" in str(told_.value)


def test_a_filled_template_holds_labels_as_they_are() -> None:
    """Braces in them are no templates."""
    assert filled("{pod}-{gpu}", {"pod": "{gpu}", "gpu": "3"}) == "{gpu}-3"
