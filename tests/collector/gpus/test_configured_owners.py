import pytest

from collector.gpus.configured_owners import (
    ConfiguredOwners,
    checked_template,
    configured_owners_of,
    filled,
)
from tests.collector.gpus.making import of_dcgm, reading


def test_a_gpu_has_several_names_and_the_exact_one_is_preferred() -> None:
    claims = configured_owners_of(["GPU-1=by-uuid", "1=by-number", "*=by-default"])
    assert claims.assigned(reading("GPU-1", index=1)) == "by-uuid"
    assert claims.assigned(reading("GPU-2", index=1)) == "by-number"
    assert claims.assigned(reading("GPU-3", index=2)) == "by-default"
    assert claims.assigned(reading("MIG-4")) == "by-default"
    assert ConfiguredOwners().assigned(reading("GPU-1", index=1)) is None


def test_gpu_numbers_mean_this_machine_and_host_numbers_an_exporters() -> None:
    """Every machine has a GPU 0, so the number alone is ambiguous."""
    claims = configured_owners_of(["0=here", "*=here", "there/0=yonder"])
    assert claims.assigned(of_dcgm(Hostname="there")) == "yonder"
    assert claims.assigned(of_dcgm(Hostname="elsewhere")) is None


def test_a_template_makes_a_name_from_labels() -> None:
    claims = configured_owners_of([], "{namespace}/{pod}:8000")
    assert claims.from_labels(of_dcgm(pod="chat-0", namespace="serving")) == "serving/chat-0:8000"
    assert claims.from_labels(of_dcgm(pod="chat-0")) is None
    configured = configured_owners_of(["GPU-1=mine"])
    assert configured.assigned(of_dcgm(pod="chat-0")) == "mine"
    gpu = of_dcgm("GPU-2", pod="chat-0")
    assert (configured.assigned(gpu), configured.from_labels(gpu)) == (None, "chat-0")


@pytest.mark.parametrize("given", ["GPU-1", "=chat", "0=", " = "])
def test_the_error_of_a_malformed_claim_lists_the_allowed_forms(given: str) -> None:
    with pytest.raises(ValueError, match="GPU=REPLICA, where GPU is a UUID"):
        configured_owners_of([given])


def test_one_gpu_has_one_replica() -> None:
    assert configured_owners_of(["0=a", "0=a"]).by_gpu == {"0": "a"}
    with pytest.raises(ValueError, match="'0=b': 0 is already assigned to a"):
        configured_owners_of(["0=a", "0=b"])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{node}", "'node' is not a label"),
        ("{pod!r}", "'pod' is not a label"),
        ("{pod.__class__}", "'pod.__class__' is not a label"),
        ("{0}", "'0' is not a label"),
        ("{pod", "expected '}'"),
        ("chat", "has no label"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        checked_template(template)
    assert "GPU_I_ID, GPU_I_PROFILE, Hostname" in str(raised.value)


def test_labels_in_a_template_are_not_expanded_again() -> None:
    assert filled("{pod}-{gpu}", {"pod": "{gpu}", "gpu": "3"}) == "{gpu}-3"
