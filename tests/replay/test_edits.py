from dataclasses import replace

import numpy as np
import pytest

from replay.arrivals import Arrivals, Prefixes
from replay.edits import EditError, Edits, RateEdit, edited_arrivals, edited_engine, edits_of
from replay.engine_config import EngineConfig
from replay.front_end import FrontEndModel

TENANTS = ["acme", "umbrella"]


def arrivals(number: int = 1_000) -> Arrivals:
    return Arrivals(
        received_s=np.linspace(0, 600, number),
        prompt_tokens=np.full(number, 100),
        output_tokens=np.full(number, 40),
        cached_tokens=np.full(number, 32),
        frontend_s=np.full(number, 0.002),
        tenant=np.arange(number) % 2,
    )


def edited(edits: Edits, engine: EngineConfig | None = None) -> Arrivals:
    return edited_arrivals(
        arrivals(),
        edits,
        engine or EngineConfig(),
        FrontEndModel(prompt_token_s=1e-6),
        TENANTS,
        np.random.default_rng(3),
    )[0]


def test_no_edit_changes_nothing() -> None:
    same = edited(Edits())
    assert (same.received_s == arrivals().received_s).all()
    assert Edits().listed() == []


@pytest.mark.parametrize("factor", [0.5, 1.5, 3.0])
def test_a_rate_adds_or_drops_requests_within_the_same_time(factor: float) -> None:
    found = edited(Edits(rates=[RateEdit(factor=factor)]))
    assert len(found) == pytest.approx(1_000 * factor, rel=0.05)
    assert found.received_s[0] >= 0
    assert found.received_s[-1] <= 600
    parts = np.histogram(found.received_s, np.linspace(0, 600, 11))[0]
    assert parts == pytest.approx(np.full(10, 100 * factor), rel=0.25)
    assert np.unique(found.received_s).size == len(found)


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_a_rate_adds_or_drops_whole_conversations(factor: float) -> None:
    """A copied conversation belongs to another user with the same system prompt."""
    number, turns = 1_000, 10
    keys = np.stack([np.zeros(number), 1 + np.arange(number) % (number // turns)], axis=1)
    prefixes = Prefixes(
        offsets=2 * np.arange(number + 1),
        keys=keys.reshape(-1).astype(np.int64),
        end_tokens=np.tile([32, 96], number),
        common=np.tile([True, False], number),
    )
    found, rows = edited_arrivals(
        replace(arrivals(), prefixes=prefixes),
        Edits(rates=[RateEdit(factor=factor)]),
        EngineConfig(),
        FrontEndModel(),
        TENANTS,
        np.random.default_rng(3),
    )
    assert len(found) == pytest.approx(number * factor, rel=0.15)
    assert found.prefixes is not None
    assert set(found.prefixes.keys[::2].tolist()) == {0}
    talks = found.prefixes.keys[1::2]
    assert set(np.unique(talks, return_counts=True)[1].tolist()) == {turns}
    # The turns keep their order, except near the ends of the recording.
    in_order = [(np.diff(rows[talks == talk]) > 0).mean() for talk in np.unique(talks)]
    assert np.mean(in_order) > 0.95


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_a_rate_adds_or_drops_whole_waiting_clients(factor: float) -> None:
    """A copied client also waits for each response."""
    number, clients = 1_000, 4
    after = np.arange(number) - clients
    after[:clients] = -1
    recorded = replace(arrivals(number), after=after, think_s=np.zeros(number))
    found, rows = edited_arrivals(
        recorded,
        Edits(rates=[RateEdit(factor=factor)]),
        EngineConfig(),
        FrontEndModel(),
        TENANTS,
        np.random.default_rng(3),
    )
    assert len(found) == number * factor
    assert found.after is not None
    linked = found.after >= 0
    assert (rows[found.after[linked]] == after[rows[linked]]).all()
    # Only at the ends of the recording, the order of a client's requests changes.
    assert linked.mean() > 0.9


def test_a_tenants_rate_does_not_change_the_other_rates() -> None:
    found = edited(Edits(rates=[RateEdit(factor=4.0, tenant="umbrella")]))
    assert found.tenant is not None
    assert np.bincount(found.tenant).tolist() == [500, 2_000]


def test_lengths_scale_with_what_is_cached_and_the_front_end() -> None:
    found = edited(Edits(prompt=2.0, output=0.01))
    assert (found.prompt_tokens == 200).all()
    assert found.cached_tokens is not None
    assert (found.cached_tokens == 64).all()
    assert (found.output_tokens == 1).all()
    assert found.frontend_s is not None
    assert found.frontend_s == pytest.approx(np.full(1_000, 0.0021))


def test_without_a_prefix_cache_no_token_is_cached() -> None:
    engine = edited_engine(EngineConfig(), {"enable-prefix-caching": "false"})
    assert edited(Edits(), engine).cached_tokens is None


@pytest.mark.parametrize(
    ("name", "value", "field", "found"),
    [
        ("max_num_seqs", "4", "max_num_seqs", 4),
        ("max-num-seqs", "4", "max_num_seqs", 4),
        ("enable_prefix_caching", "off", "enable_prefix_caching", False),
        ("scheduling_policy", "priority", "policy", "priority"),
    ],
)
def test_an_argument_sets_its_field(name: str, value: str, field: str, found: object) -> None:
    assert getattr(edited_engine(EngineConfig(), {name: value}), field) == found


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"gpu_memory": "1"}, "gpu_memory: not modelled; allowed: max_num_seqs"),
        (
            {"max_num_batched_tokens": "9" * 30},
            "a whole number of at least 1 and at most 2147483647",
        ),
        ({"max_num_seqs": "many"}, "max_num_seqs: 'many'; allowed: a whole number of at least 1"),
        ({"max_num_seqs": "0"}, "max_num_seqs: '0'; allowed: a whole number of at least 1"),
        ({"max_num_batched_tokens": "16"}, "allowed: at least max_num_seqs"),
        ({"num_gpu_blocks": "3"}, "one request of max_model_len"),
        ({"enable_prefix_caching": "perhaps"}, "allowed: true or false"),
        ({"scheduling_policy": "lifo"}, "allowed: fcfs or priority"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_allowed_values(
    arguments: dict[str, str], reason: str
) -> None:
    with pytest.raises(EditError, match=reason):
        edited_engine(EngineConfig(), arguments)


@pytest.mark.parametrize(
    "wrong", [{"replicas": 0}, {"prompt": 0.0}, {"output": -1.0}, {"rates": [RateEdit(factor=0.0)]}]
)
def test_a_factor_or_count_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(EditError, match="allowed"):
        Edits(**wrong)  # type: ignore[arg-type]


def test_a_rate_of_an_unknown_tenant_names_the_known_ones() -> None:
    with pytest.raises(EditError, match="tenant=globex has no requests; allowed: acme, umbrella"):
        edited(Edits(rates=[RateEdit(factor=2.0, tenant="globex")]))


def test_a_known_tenants_name_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TENANTS", ["acme\x1b[2J", "umbrella\n"])
    with pytest.raises(EditError) as refused:
        edited(Edits(rates=[RateEdit(factor=2.0, tenant="globex")]))
    assert str(refused.value).isprintable()


def test_edits_are_read_as_they_are_listed() -> None:
    texts = [
        *("max_num_seqs=64", "replicas=3", "router=prefix_aware", "rate=1.5x"),
        *("rate=tenant=acme:0.5x", "prompt=2x", "output=0.5x"),
    ]
    assert edits_of(texts).listed() == texts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max_num_seqs", "must be NAME=VALUE"),
        ("rate=fast", "must be a factor from 0.001x to 1000x"),
        ("rate=1000.5x", "rate 1000.5x; allowed: a factor from 0.001x to 1000x"),
        ("rate=tenant=acme:0.0001x", "rate 0.0001x; allowed: a factor from 0.001x to 1000x"),
        ("output=1000000x", "output 1000000x; allowed: a factor from 0.001x to 1000x"),
        ("prompt=tenant=acme:2x", "must be a factor"),
        ("replicas=two", "replicas: 'two'"),
        ("replicas=999999999999", "replicas: 999999999999; allowed: 1 to 10000"),
        ("replicas=" + "9" * 5_000, "9'; allowed: 1 to 10000"),
        ("router=random", "allowed: round_robin"),
        ("gpu=H200", "gpu: not modelled; allowed: max_num_seqs"),
        ("max_num_seqs=lots", "max_num_seqs: 'lots'; allowed: a whole number"),
        ("enable-prefix-caching=maybe", "allowed: true or false"),
    ],
)
def test_a_text_that_is_not_an_edit_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(EditError, match=reason):
        edits_of([text])


@pytest.mark.parametrize("name", ["num_speculative_tokens", "num-speculative-tokens"])
def test_speculation_needs_a_recorded_share_of_accepted_tokens(name: str) -> None:
    """Without a recorded share, every drafted token would count as rejected."""
    edits = Edits(arguments={name: "4"})
    engine = edited_engine(EngineConfig(), edits.arguments or {})
    with pytest.raises(EditError, match="4; allowed: 0, because a recorded engine drafts"):
        edited(edits, engine)
    off = Edits(arguments={name: "0"})
    assert len(edited(off, edited_engine(EngineConfig(), off.arguments or {}))) == 1_000
