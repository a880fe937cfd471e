from dataclasses import dataclass

import pytest

from store.schema import fields_of
from telemetry.labels import labels_of
from telemetry.requests import RequestTimeline


def test_labels_are_names_and_numbers_that_name() -> None:
    labels = labels_of(RequestTimeline)
    assert {"tenant", "outcome", "engine", "http_status", "streamed"} <= set(labels)
    assert not {"e2e_s", "prompt_tokens", "received_unix_ns"} & set(labels)


def test_a_type_without_a_column_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Odd:
        blob: bytes

    with pytest.raises(TypeError, match=r"blob: no column type for .*bytes.*allowed: str, bool"):
        fields_of(Odd)
