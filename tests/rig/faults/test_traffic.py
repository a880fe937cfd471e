from dataclasses import replace

from rig.faults.traffic import PlannedTraffic

USUAL = PlannedTraffic(rate_per_s=20.0)


def test_the_same_seed_sends_the_same() -> None:
    traffic = replace(USUAL, rate_per_s=5.0, extra=(USUAL,))
    arrivals = traffic.arrivals("a", 5.0)
    assert arrivals == traffic.arrivals("a", 5.0) != traffic.arrivals("b", 5.0)
    instants = [at_s for at_s, _ in arrivals]
    assert instants == sorted(instants)
    assert all(0 < at_s < 5.0 for at_s in instants)


def test_a_tenants_prompts_share_a_prefix_in_every_period() -> None:
    calls = [call for seed in "ab" for _, call in USUAL.arrivals(seed, 10.0)]
    of = {call.headers["x-tenant-id"]: call.prompt[: USUAL.prefix_tokens] for call in calls}
    assert len(set(of.values())) == len(USUAL.tenants)
    assert all(call.prompt.startswith(of[call.headers["x-tenant-id"]]) for call in calls)


def test_without_sharing_no_two_prompts_have_a_common_prefix() -> None:
    calls = [call for _, call in replace(USUAL, shared=False).arrivals("a", 10.0)]
    assert len({call.prompt[:64] for call in calls}) == len(calls)


def test_lengths_are_as_asked() -> None:
    for _, call in USUAL.arrivals("a", 20.0):
        own = len(call.prompt) - USUAL.prefix_tokens
        assert USUAL.prompt_tokens[0] <= own <= USUAL.prompt_tokens[1]
        assert USUAL.output_tokens[0] <= call.max_tokens <= USUAL.output_tokens[1]
