import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.scrape import exposition
from collector.scrape.engine_series import ENGINES
from collector.scrape.failure_reasons import ScrapeError, ScrapeFailureReason
from collector.scrape.unknown_engines import describe
from telemetry.engines import EngineSample

SAMPLES = Path(__file__).parents[1] / "samples"


def by_engine(name: str) -> dict[int, dict[str, Any]]:
    return exposition.read((SAMPLES / name).read_bytes()).engines


def reason(body: bytes) -> ScrapeFailureReason:
    with pytest.raises(ScrapeError) as raised:
        exposition.read(body)
    return raised.value.reason


def test_the_metrics_of_a_vllm_are_read() -> None:
    answer = exposition.read((SAMPLES / "vllm-0.32.0.txt").read_bytes())
    assert answer.software == "vLLM"
    assert answer.started_unix_s == 1795187900.06
    assert answer.engines == {
        0: {
            "model": "tiny",
            "waiting": 0,
            "running": 0,
            "deferred": 0,
            "kv_usage_ratio": 0.0,
            "prefill_tokens_total": 879,
            "local_cached_prompt_tokens_total": 0,
            "external_cached_prompt_tokens_total": 0,
            "decode_tokens_total": 44,
            "prefix_cache_queries_tokens_total": 879,
            "prefix_cache_hits_tokens_total": 0,
            "external_cache_queries_tokens_total": 0,
            "external_cache_hits_tokens_total": 0,
            "host_cache_hits_tokens_total": 0,
            "p2p_cache_hits_tokens_total": 0,
            "disk_cache_hits_tokens_total": 0,
            "mm_cache_queries_total": 0,
            "mm_cache_hits_total": 0,
            "preemptions_total": 0,
            "modelled_flops_total": 0.0,
            "modelled_read_bytes_total": 0.0,
            "modelled_write_bytes_total": 0.0,
        }
    }


def test_older_names_and_several_engines_of_vllm_are_read() -> None:
    engines = by_engine("vllm-before-0.12.txt")
    assert engines[0]["kv_usage_ratio"] == 0.62
    assert engines[0]["prefix_cache_hits_tokens_total"] == 21_000
    assert engines[0]["prefill_tokens_total"] == 52_500
    assert engines[1] == {"model": "llama", "waiting": 0, "running": 2, "kv_usage_ratio": 0.11}


OFFLOADING = """\
vllm:num_requests_running{engine="0",model_name="llama"} 2
vllm:kv_offload_total_bytes_total{engine="0",model_name="llama",transfer_type="CPU_to_GPU"} 4096
vllm:kv_offload_total_bytes_total{engine="0",model_name="llama",transfer_type="GPU_to_CPU"} 1024
vllm:kv_offload_total_time_total{engine="0",model_name="llama",transfer_type="CPU_to_GPU"} 0.5
vllm:kv_offload_total_time_total{engine="0",model_name="llama",transfer_type="GPU_to_CPU"} 0.25
"""
REDESIGNED = """\
vllm:kv_offload_load_bytes_total{engine="0",model_name="llama"} 8192
vllm:kv_offload_load_time_total{engine="0",model_name="llama"} 0.75
vllm:kv_offload_allocation_failure_total{engine="0",model_name="llama"} 3
vllm:kv_offload_lookup_sync_delay_seconds_sum{engine="0",model_name="llama"} 0.125
vllm:kv_offload_tiering_read_bytes_total{engine="0",model_name="llama",tier="1:fs"} 512
vllm:kv_offload_tiering_read_bytes_total{engine="0",model_name="llama",tier="2:obj"} 64
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="llama",source="device"} 900
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="llama",source="disk"} 32
"""


def test_offloading_is_read_by_direction_and_tier_under_both_names() -> None:
    """vLLM's new metric names are preferred to the old names."""
    before = exposition.read(OFFLOADING.encode()).engines[0]
    after = exposition.read((OFFLOADING + REDESIGNED).encode()).engines[0]
    names = ("kv_offload_load_bytes_total", "kv_offload_load_s_total")
    assert [before[name] for name in names] == [4096, 0.5]
    assert [after[name] for name in names] == [8192, 0.75]
    for found in (before, after):
        assert found["kv_offload_store_bytes_total"] == 1024
        assert found["kv_offload_store_s_total"] == 0.25
    assert after["kv_offload_store_failures_total"] == 3
    assert after["kv_offload_lookup_s_total"] == 0.125
    assert after["kv_tier_read_bytes_total"] == 576
    assert after["disk_cache_hits_tokens_total"] == 32
    assert "disk_cache_hits_tokens_total" not in before


def test_the_metrics_of_a_recorded_sglang_are_read() -> None:
    """Cached prompt tokens are not yet in the totals of finished requests."""
    answer = exposition.read((SAMPLES / "sglang-0.5.23.txt").read_bytes())
    assert answer.software == "SGLang"
    assert answer.unusable_values == 0
    assert answer.engines == {
        0: {
            "model": "tiny",
            "waiting": 8,
            "running": 1,
            "kv_usage_ratio": 0.37,
            "prefill_tokens_total": 2_259,
            "decode_tokens_total": 760,
            "prefix_cache_queries_tokens_total": 1_154,
            "prefix_cache_hits_tokens_total": 388,
        }
    }


def test_the_worker_of_a_dynamo_is_read_as_its_engine() -> None:
    answer = exposition.read((SAMPLES / "dynamo-1.6.1-worker.txt").read_bytes())
    assert answer.software == "vLLM"
    assert answer.engines == {
        0: {
            "model": "tiny",
            "waiting": 8,
            "running": 4,
            "kv_usage_ratio": 0.390625,
            "preemptions_total": 0,
        }
    }


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("dynamo-1.6.1-front-end.txt", "the front end of NVIDIA Dynamo"),
        ("sglang-router-0.3.2.txt", "SGLang's router"),
        ("vllm-router-0.1.17.txt", "vLLM's router"),
    ],
)
def test_the_message_names_a_router_and_what_to_scrape_instead(name: str, advice: str) -> None:
    with pytest.raises(ScrapeError) as raised:
        exposition.read((SAMPLES / name).read_bytes())
    assert raised.value.reason is ScrapeFailureReason.UNKNOWN_ENGINE
    assert advice in str(raised.value)
    assert "scrape the workers" in str(raised.value)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"# TYPE node_load1 gauge\nnode_load1 0.5\n", "the first series is node_load1;"),
        (b"x" * 5_000_000, "no series;"),
        (b"<html>\x1b[2J dynamo_frontend_x</html>", "no series;"),
        (b"\x00\xff\n" * 10_000, "no series;"),
        (b"ok\n", "no series;"),
    ],
)
def test_the_message_of_an_unknown_engine_names_its_first_series(body: bytes, shown: str) -> None:
    text = describe(body, ["vLLM", "SGLang"])
    assert shown in text
    assert text.endswith("known engines: vLLM, SGLang")
    assert text.isprintable()
    assert len(text) < 200


def test_the_ranks_of_an_sglang_count_once() -> None:
    assert by_engine("sglang.txt") == {
        0: {
            "model": "llama",
            "waiting": 28,
            "running": 16,
            "kv_usage_ratio": 0.28,
            "prefill_tokens_total": 50_500,
            "decode_tokens_total": 7_500,
            "prefix_cache_queries_tokens_total": 81_000,
            "prefix_cache_hits_tokens_total": 30_500,
            "preemptions_total": 2,
        }
    }


def test_a_tgi_has_no_model_and_no_cache() -> None:
    assert by_engine("tgi.txt") == {
        0: {
            "model": None,
            "waiting": 5,
            "running": 12,
            "prefill_tokens_total": 56_320,
            "decode_tokens_total": 10_750,
        }
    }


def test_a_tritons_cache_use_is_computed_from_blocks() -> None:
    """Triton's own `fraction` is another quantity."""
    assert by_engine("triton-trtllm.txt") == {
        0: {
            "model": "tensorrt_llm",
            "waiting": 3,
            "running": 9,
            "kv_usage_ratio": 0.25,
            "steps_total": 3301,
            "prefill_tokens_total": 12_000,
            "decode_tokens_total": 3_000,
        }
    }


def test_every_field_of_every_table_is_one_of_a_samples() -> None:
    fields = set(EngineSample.__dataclass_fields__)
    assert all(set(table.fields) <= fields for table in ENGINES)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", ScrapeFailureReason.UNKNOWN_ENGINE),
        (b"<html><body>Welcome</body></html>", ScrapeFailureReason.UNKNOWN_ENGINE),
        (b"node_load1 0.5\n", ScrapeFailureReason.UNKNOWN_ENGINE),
        (b"process_start_time_seconds 1.7e9\n", ScrapeFailureReason.UNKNOWN_ENGINE),
        (b"\xff\xfe\x00", ScrapeFailureReason.MALFORMED),
        (b"vllm:num_requests_running{engine=\n", ScrapeFailureReason.MALFORMED),
        (b"vllm:num_requests_running nonsense\n", ScrapeFailureReason.MALFORMED),
        (b'tgi_queue_size{a="' + b"x" * 9000 + b'"} 1\n', ScrapeFailureReason.TOO_LARGE),
        (b"tgi_queue_size 1\n" * 10_001, ScrapeFailureReason.TOO_LARGE),
        (
            b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % n for n in range(300)),
            ScrapeFailureReason.TOO_LARGE,
        ),
    ],
)
def test_a_malformed_answer_has_a_reason(body: bytes, expected: ScrapeFailureReason) -> None:
    assert reason(body) is expected


@pytest.mark.parametrize(
    ("value", "counted"), [("-1", 1), ("Inf", 1), ("1e300", 1), ("-Inf", 1), ("NaN", 0)]
)
def test_an_impossible_value_is_unknown_and_counted(value: str, counted: int) -> None:
    answer = exposition.read(f"tgi_queue_size {value}\ntgi_batch_current_size 2\n".encode())
    assert answer.engines == {0: {"model": None, "running": 2}}
    assert answer.unusable_values == counted


def test_a_percentage_does_not_pass_for_a_ratio() -> None:
    answer = exposition.read(b"vllm:kv_cache_usage_perc 62\nvllm:num_requests_running 1\n")
    assert "kv_usage_ratio" not in answer.engines[0]
    assert answer.unusable_values == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["vllm:num_requests_running", "tgi_queue_size", "sglang:token_usage"]),
            st.text('{}="\\,ab01 .\n#e+-N', max_size=24),
        ),
        max_size=6,
    )
)
def test_no_text_raises_another_exception(lines: list[tuple[str, str]]) -> None:
    body = "\n".join(name + rest for name, rest in lines).encode()
    with contextlib.suppress(ScrapeError):
        exposition.read(body)
