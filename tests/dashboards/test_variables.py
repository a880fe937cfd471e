import re

from dashboards.variables import VARIABLES
from exporters.definitions import gpu_series
from exporters.definitions.engine_series import ENGINE_INFO
from exporters.definitions.series import REQUESTS
from tests.dashboards.conftest import Ask


def _selector(name: str) -> str:
    found = re.fullmatch(r"label_values\((.*), \w+\)", VARIABLES[name].query)
    assert found is not None
    return found[1]


def test_every_series_of_a_replica_lists_it() -> None:
    """Some replicas send only requests or only GPU samples."""
    names = re.search(r'__name__=~"([^"]*)"', _selector("replica"))
    assert names is not None
    for each in (ENGINE_INFO, REQUESTS, gpu_series.LAST_SAMPLE):
        assert "replica" in each.labels
        assert each.name in names[1].split("|")


def test_a_replica_without_engine_samples_can_be_selected(ask: Ask) -> None:
    series = {
        'tailspan_engine_info{model="m",replica="r0",region="eu"}': "1x5",
        'tailspan_requests_total{model="m",replica="r0"}': "1x5",
        'tailspan_requests_total{model="m",replica="native"}': "1x5",
        'tailspan_gpu_last_sample_timestamp_seconds{replica="gpus"}': "1x5",
    }
    replicas = f"group by (replica) ({_selector('replica')})"
    every = [f'{{replica="{each}"}}' for each in ("gpus", "native", "r0")]
    ask(replicas, series, {"3m": every})
    ask(replicas.replace("$region", "eu"), series, {"3m": ['{replica="r0"}']})
    ask(replicas.replace("$region", "us"), series, {"3m": []})
