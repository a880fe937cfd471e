import numpy as np
import pytest

from roofline.load import step
from roofline.requests import work_of_requests
from roofline.shape_from_config import shape_of
from roofline.work import work_of
from tests.roofline import configs

SHAPE = shape_of(configs.llama_3_8b())
TOKEN_BYTES = 128 * 1024


def columns(*values: float) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return [np.array([value], dtype=np.float64) for value in values]


def test_a_request_is_the_sum_of_its_steps() -> None:
    prompt, cached, output = 1000, 400, 50
    steps = [
        step(
            prefill_tokens=600,
            prefill_attention=600 * (400 + 300),
            prefill_context_tokens=cached,
            prompts=1,
        ),
        *(step(context_tokens=prompt + n, decodes=1) for n in range(output - 1)),
    ]
    works = [work_of(SHAPE, each) for each in steps]
    request = work_of_requests(SHAPE, *columns(prompt, cached, output))
    for name in ("flops", "kv_read_bytes", "kv_write_bytes"):
        whole = sum(float(getattr(work, name)[0]) for work in works)
        assert float(getattr(request, name)[0]) == pytest.approx(whole), name
    assert np.isnan(request.weight_bytes).all()


def test_a_full_house_shares_the_weights() -> None:
    prompt, cached, output, batch = columns(100, 0, 100, 32)
    request = work_of_requests(SHAPE, prompt, cached, output, batch)
    assert float(request.weight_bytes[0]) == pytest.approx(99 * 15.01e9 / 32, rel=1e-3)


def test_the_prefill_generates_the_first_token() -> None:
    request = work_of_requests(SHAPE, *columns(100, 0, 1))
    assert float(request.kv_read_bytes[0]) == 0.0
    assert float(request.kv_write_bytes[0]) == 100 * TOKEN_BYTES


def test_the_unknown_stays_unknown() -> None:
    request = work_of_requests(SHAPE, *columns(100, np.nan, 1))
    assert np.isnan(request.flops).all()
