from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from analysis.counterfactual.effects import with_effects
from analysis.counterfactual.shares import Tails
from diagnosis.claim import Lever
from diagnosis.question import Metric
from tests.analysis.counterfactual.test_shares import (
    BEGAN_S,
    ENDED_S,
    SHARE,
    proposed,
    recorded,
    simulated,
)


@pytest.mark.usefixtures("few_draws")
def test_the_effect_is_that_on_the_requests_that_have_the_latency() -> None:
    """The TTFT of a response that is not streamed is its E2E."""
    data = simulated("load_exceeds_capacity")
    table = data.request_table()
    streamed = np.arange(table.num_rows) % 10 != 0
    first_s = np.where(streamed, table["ttft_s"].to_numpy(), table["e2e_s"].to_numpy())
    for name, column in {"streamed": streamed, "ttft_s": first_s}.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(column, from_pandas=True))
    window = recorded(data, BEGAN_S, ENDED_S, table)
    cause = replace(
        proposed("load_exceeds_capacity"), levers=[Lever("send less", change="rate=0.5x")]
    )
    ((lever,),) = (
        each.levers for each in with_effects([cause], window, Tails(Metric.TTFT, SHARE, {}))
    )
    assert lever.predicted is not None
    ttft_s = window.column("ttft_s")
    has_ttft = window.counted & (window.column("streamed") == 1)
    assert lever.predicted.now_s == pytest.approx(np.nanquantile(ttft_s[has_ttft], 0.99), rel=0.05)
