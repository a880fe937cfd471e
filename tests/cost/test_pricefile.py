from pathlib import Path

import pytest
from genai_prices import Usage, calc_price

from cost.errors import PriceError
from cost.pricefile import DEFAULTS, load_prices, parse_prices, prices_in_force

H100 = "NVIDIA H100 80GB HBM3"
ALIASES = "\n".join(
    ["- &a0 [a]", *(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))]
)
"""10 billion characters, if each alias is replaced by its value."""


def test_every_default_price_has_its_source_page_and_date() -> None:
    prices = load_prices()
    origins = [each.origin for each in prices.devices]
    origins += [each.origin for each in prices.carbon]
    assert prices.pue is not None
    for origin in (*origins, prices.pue.origin):
        assert origin.source
        assert origin.page
        assert origin.date is not None
        assert len(origin.date) == 10


def test_devices_are_known_by_the_names_that_drivers_give_them() -> None:
    """From NVML, amdsmi and vLLM. A CPU, a slice of a GPU and a similar model have no price."""
    for device, name in (
        (H100, "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        *((other, None) for other in ("cpu", f"{H100} MIG 1g.10gb", "NVIDIA L40", None)),
    ):
        rate = load_prices().rate(device=device)
        assert (rate and rate.what) == name, device


def test_a_users_entries_precede_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"devices:\n- match: '{H100}'\n  usd_per_hour: 2\n  regions: {{eu: 3}}\n"
        "- {match: cpu, usd_per_hour: 0.5}\n"
        "replicas:\n- {match: [batch-*], usd_per_hour: 11}\n"
    )
    prices = load_prices(path)
    rates = [
        prices.rate(device=H100, gpus=4),
        prices.rate(device=H100.lower(), gpus=4, region="eu"),
        prices.rate(replica="batch-7", device=H100, gpus=4),
        prices.rate(device="cpu"),
        prices.rate(device="NVIDIA H200"),
    ]
    assert [rate and pytest.approx(rate.usd_per_hour) for rate in rates] == [8, 12, 11, 0.5, 4.59]
    assert rates[0] is not None
    assert rates[0].origin.source == str(path)
    assert prices_in_force(None, {"TAILSPAN_PRICES": str(path)}) == prices
    assert prices_in_force(None, {}) == load_prices()


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("device: []", "f.yaml: the file: 'device'; allowed: the keys devices, replicas"),
        ("devices: {a: 1}", "f.yaml: devices: {'a': 1}; allowed: a list of entries"),
        ("devices: [3]", "f.yaml: devices[0]: 3; allowed: a mapping"),
        ("devices: [{match: a}]", "f.yaml: devices[0].usd_per_hour: None; allowed: a number, 0"),
        ("devices: [{match: a, usd_per_hour: '2'}]", "devices[0].usd_per_hour: '2'; allowed"),
        ("devices: [{match: a, usd_per_hour: -1}]", "devices[0].usd_per_hour: -1; allowed"),
        ("devices: [{match: a, usd_per_hour: .nan}]", "devices[0].usd_per_hour: nan; allowed"),
        ("devices: [{match: a, usd_per_hour: true}]", "devices[0].usd_per_hour: True; allowed"),
        ("devices: [{usd_per_hour: 1}]", "devices[0].match: None; allowed: a name"),
        ("devices: [{match: a, usd_per_hour: 1, usd: 2}]", "devices[0]: 'usd'; allowed: the keys"),
        ("devices: [{match: a, usd_per_hour: 1, regions: {b: c}}]", "devices[0].regions.b: 'c'"),
        ("pue: {ratio: 0.9}", "f.yaml: pue.ratio: 0.9; allowed: a number, 1 or more"),
        ("managed: [{match: a, provider: p}]", "managed[0].model: None; allowed: a text"),
        ("[", "f.yaml: not valid YAML"),
        ("7", "f.yaml: the file: 7; allowed: a mapping"),
        (ALIASES, "f.yaml: not valid YAML: more than 4,194,304 characters"),
    ],
)
def test_an_error_contains_file_key_value_and_the_allowed_values(
    written: str, complaint: str
) -> None:
    with pytest.raises(PriceError) as error:
        parse_prices(written, "f.yaml")
    assert complaint in str(error.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match=r"none\.yaml: cannot be read"):
        load_prices(tmp_path / "none.yaml")


def test_every_managed_default_is_known_to_genai_prices() -> None:
    """If this fails after an upgrade, change prices.yaml to genai-prices' new model name."""
    for each in parse_prices(DEFAULTS.read_text(), "prices.yaml").managed:
        found = calc_price(
            Usage(input_tokens=1_000, output_tokens=100), each.model, provider_id=each.provider
        )
        assert found.total_price > 0, each
