import pytest
from tailspan_vllm.request.text_limits import TEXT_LIMIT, bounded_id, bounded_text

HOSTILE = ["x" * 1_100_000, "é" * 60_000, "\ud800" * 300, "a\udfffb", "\ud800"]


@pytest.mark.parametrize("text", ["", "cmpl-1", "x" * TEXT_LIMIT, "é" * TEXT_LIMIT])
def test_a_text_that_fits_is_unchanged(text: str) -> None:
    assert bounded_text(text) == bounded_id(text) == text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_the_result_fits_and_can_be_encoded(text: str) -> None:
    for bound in (bounded_text, bounded_id):
        bounded = bound(text)
        bounded.encode()
        assert len(bounded) <= TEXT_LIMIT
        assert bound(bounded) == bounded


def test_ids_that_differ_after_the_limit_stay_different() -> None:
    first, second = (bounded_id("x" * 60_000 + end) for end in "ab")
    assert first != second
    assert first[:200] == second[:200] == "x" * 200


def test_ids_with_different_unencodable_characters_stay_different() -> None:
    assert len({bounded_id("a\ud800"), bounded_id("a\udfff"), bounded_id("a?")}) == 3
