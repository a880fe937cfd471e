import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.cost_sides import CostSide, Sides, sides_of
from cost.bill import Bill, bill
from roofline.load import summed
from roofline.shape_from_config import read_shape
from roofline.work import work_of
from telemetry.billing_data import COEFFICIENTS
from tests.cost.making import PRICES, start, steady

SHAPE = json.dumps(
    {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "dtype": "bfloat16",
    }
)


def divided(
    rps: tuple[float, float, float] = (2.0, 800.0, 200.0), role: str | None = None, **about: Any
) -> tuple[Bill, Sides]:
    """Return an engine's bill for an hour, and the costs of its prefill and decode side.

    Args:
        rps: requests per second, and prompt and output tokens per request.
        role: the engine's role in the transfer of KV cache.
        about: further fields of the `EngineStart`.
    """
    made = steady({"r": (0, 3_600)}, 0, 3_600, lambda hour: rps)
    arguments = json.dumps({} if role is None else {"kv_transfer.kv_role": role})
    begun = replace(start("r"), arguments=arguments, shape=SHAPE, **about)
    found = bill(replace(made, starts=[begun]), PRICES)
    return found, sides_of(found, [begun])


def side(found: Sides, name: str) -> CostSide:
    (only,) = [each for each in found.sides if each.name == name]
    return only


@given(st.floats(0.01, 3), st.floats(1, 4_000), st.floats(1, 500))
def test_the_sides_sum_to_the_time_in_steps(rate: float, prompt: float, output: float) -> None:
    """The costs of idle time, of loading and of the two sides sum to the bill."""
    found, sides = divided((rate, prompt, output))
    total = found.total
    assert total is not None
    summed_usd = sum(each.usd for each in sides.sides) + sides.undivided_usd
    rest_usd = (total.idle_usd or 0.0) + total.loading_usd
    assert summed_usd + rest_usd == pytest.approx(total.bill_usd, rel=1e-9)
    assert sum(each.busy_s for each in sides.sides) == pytest.approx(total.busy_s, rel=1e-9)


def test_the_bytes_and_flops_of_the_sides_are_those_of_the_engine() -> None:
    found, sides = divided()
    (hour,) = found.uptime.hours.values()
    names = ("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total")
    of = [np.array([hour.work[name]]) for name in (*names, "context_tokens_total", "decodes_total")]
    whole = work_of(read_shape(SHAPE), summed(*of))
    flops = [each.flops for each in sides.sides if each.flops is not None]
    moved = [each.moved_bytes for each in sides.sides if each.moved_bytes is not None]
    assert sum(flops) == pytest.approx(float(whole.flops[0]))
    assert sum(moved) == pytest.approx(float(whole.bytes[0]))
    assert min(*flops, *moved) > 0


def test_prefill_needs_arithmetic_and_decode_needs_memory() -> None:
    _, sides = divided()
    prefill, decode = side(sides, "prefill"), side(sides, "decode")
    assert prefill.mfu is not None
    assert decode.mfu is not None
    assert prefill.mbu is not None
    assert decode.mbu is not None
    assert prefill.mfu > 5 * decode.mfu
    assert decode.mbu > 2 * prefill.mbu


def test_several_gpus_have_the_same_utilisation_and_more_bytes() -> None:
    (_, one), (_, two) = divided(), divided(gpus=2)
    assert side(two, "decode").moved_bytes == pytest.approx(
        2 * (side(one, "decode").moved_bytes or 0)
    )
    assert side(two, "decode").mbu == side(one, "decode").mbu


def test_an_engine_with_a_role_is_named() -> None:
    _, sides = divided(role="kv_producer")
    assert [(each.role, each.name) for each in sides.sides] == [
        ("kv_producer", "prefill"),
        ("kv_producer", "decode"),
    ]


@pytest.mark.parametrize("unknown", [{"device": "Abacus"}, {"device": None}])
def test_without_peaks_the_utilisation_is_unknown(unknown: dict[str, Any]) -> None:
    made = steady({"r": (0, 3_600)}, 0, 3_600)
    found = bill(made, PRICES)
    sides = sides_of(found, [replace(start("r"), shape=SHAPE, **unknown)])
    assert side(sides, "decode").flops is not None
    assert (side(sides, "decode").mfu, side(sides, "decode").mbu) == (None, None)


@pytest.mark.parametrize("shape", [None, "{}", "nonsense"])
def test_without_a_shape_only_time_and_cost_are_known(shape: str | None) -> None:
    made = steady({"r": (0, 3_600)}, 0, 3_600)
    sides = sides_of(bill(made, PRICES), [replace(start("r"), shape=shape)])
    decode = side(sides, "decode")
    assert decode.usd > 0
    assert (decode.flops, decode.moved_bytes, decode.mfu, decode.mbu) == (None,) * 4


def test_without_a_step_model_nothing_is_divided() -> None:
    made = steady({"r": (0, 3_600)}, 0, 3_600)
    unknown = np.full(made.engines.which.size, np.nan)
    engines = replace(made.engines, coefficients=dict.fromkeys(COEFFICIENTS, unknown))
    found = bill(replace(made, engines=engines), PRICES)
    total = found.total
    assert total is not None
    sides = sides_of(found, made.starts)
    assert not sides.sides
    busy_usd = total.bill_usd - (total.idle_usd or 0.0) - total.loading_usd
    assert sides.undivided_usd == pytest.approx(busy_usd)


def test_the_hours_of_each_engine_count_once() -> None:
    made = steady({"r": (0, 7_200), "s": (0, 7_200)}, 0, 7_200)
    starts = [replace(start(name), shape=SHAPE) for name in ("r", "s")]
    found = bill(replace(made, starts=starts), PRICES)
    both = side(sides_of(found, starts), "decode").flops
    alone = [side(sides_of(found, [each]), "decode").flops or 0.0 for each in starts]
    assert min(alone) > 0
    assert both == pytest.approx(sum(alone))


def test_a_later_start_does_not_change_the_hours_before() -> None:
    """The engine restarts on another device, with another model and role. The bill ends in an
    hour."""
    made = steady({"r": (0, 7_200)}, 0, 5_400)
    first = replace(start("r"), shape=SHAPE)
    found = bill(replace(made, starts=[first]), PRICES)
    smaller = json.dumps(json.loads(SHAPE) | {"num_hidden_layers": 1})
    arguments = json.dumps({"kv_transfer.kv_role": "kv_consumer"})

    def sides(*at_s: int) -> Sides:
        later = [
            replace(first, at_unix_ns=at * 10**9, shape=smaller, device=None, arguments=arguments)
            for at in at_s
        ]
        return sides_of(found, [*reversed(later), first])

    assert sides(5_400 + 60) == sides()
    one, other = sides(3_600 + 60).sides[:2], sides(3_600 + 60).sides[2:]
    assert [each.role for each in (*one, *other)] == [None, None, "kv_consumer", "kv_consumer"]
    assert [each.mfu for each in one] == pytest.approx([each.mfu for each in sides().sides])
    assert [each.mfu for each in other] == [None, None]
