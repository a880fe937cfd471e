"""Replay a window in which some factors, such as the request rate, are reset to their values in the
baseline.

Pure.

The README describes how each factor is reset.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.corrected_prediction import values_at
from analysis.counterfactual.evictions import Evictions
from analysis.counterfactual.factors import LENGTHS, RATES, SERVERS, Factor, FactorKind
from analysis.counterfactual.rate_groups import grouped_by_rate
from analysis.counterfactual.routing import in_baseline_shares, with_usual_servers
from analysis.counterfactual.window_requests import WindowRequests
from analysis.recorded_traffic import Recorded, RecordedEngine
from analysis.window_replay import ReplayTraffic
from diagnosis.inputs.requests import MIN_REQUESTS
from replay.arrivals import Arrivals, BoolArray, FloatArray, IntArray
from replay.conditions import Conditions, Shift
from replay.loop import replay
from replay.server_model import ServerModel

_NS: Final = 10**9
NEIGHBOURS: Final = 10
"""A request gets the cached tokens of a random baseline request of the same tenant. It is drawn
from about this many requests with the nearest prompt lengths."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeTraffic:
    """A recorded range, and its recorded or resampled traffic."""

    recorded: Recorded
    traffic: ReplayTraffic

    @property
    def seconds(self) -> float:
        """Length in seconds of the range whose requests are counted."""
        window = self.recorded.window
        return (window.to_unix_ns - window.from_unix_ns) / _NS


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedLatencies:
    """The latencies of the counted requests in a replay."""

    latency_s: FloatArray
    row: IntArray
    """The recorded row that each request copies (see `WindowRequests.row`)."""


class MixedWindow:
    """The window's requests and servers, with factors that can be reset to the baseline."""

    def __init__(
        self,
        window: RangeTraffic,
        baseline: RangeTraffic,
        factors: Sequence[Factor],
        chance: np.random.Generator,
        evictions: Evictions | None = None,
    ) -> None:
        self.window, self.baseline, self.factors = window, baseline, factors
        self._chance, self._evictions = chance, evictions
        # The recorded time in the front end includes waits for other requests, which depend on the
        # other factors. So if the front end is a factor, the front-end model computes this time.
        self._models_front_end = any(each.kind is FactorKind.FRONT_END for each in factors)
        # If an engine restarted with other arguments, the window has several engine parts with the
        # same name.
        self._names = [(each.replica, each.engine) for each in window.recorded.engines]
        self._from_s = np.array([each.from_s for each in window.recorded.engines])
        known = {
            (each.replica, each.engine): place
            for place, each in enumerate(baseline.recorded.engines)
        }
        self._baseline_places = [known.get(name) for name in self._names]
        shifts = self._baseline_shifts()
        self._baseline_conditions = [each.shifted(shifts) for each in baseline.traffic.conditions]
        now, usual = self._requests(window), self._requests(baseline)
        usual = _repeated(usual.take(usual.at_s >= 0), baseline.seconds, window.seconds)
        usual = replace(usual, engine=self._in_parts(usual.engine, usual.at_s))
        self._quicker_link = _link_ratio(window.recorded, baseline.recorded)
        self._window_requests, self._baseline_requests = grouped_by_rate(factors, now, usual)

    def replay_of(
        self, to_reset: Collection[int], metric: str, seed: str, step_ratio: float = 1.0
    ) -> Callable[[], ReplayedLatencies]:
        """Return a function that replays the window with some factors reset to the baseline.

        The random requests are drawn in this call. So the returned functions can run in parallel.

        Args:
            metric: the latency to return, a field of `replay.outcome.ReplayOutcome`.
            step_ratio: all step times are multiplied by this ratio.
        """
        requests = self._mixed(to_reset)
        chosen = [self.factors[place] for place in to_reset]
        return partial(self._latencies, requests, chosen, metric, seed, step_ratio)

    def _latencies(
        self,
        requests: WindowRequests,
        chosen: Sequence[Factor],
        metric: str,
        seed: str,
        step_ratio: float,
    ) -> ReplayedLatencies:
        found_s, rows = [], []
        for number, engine in enumerate(self.window.recorded.engines):
            mine = requests.take(requests.engine == number)
            model, conditions = self._server(number, engine, chosen)
            step = model.engine.step.scaled(step_ratio)
            model = replace(model, engine=replace(model.engine, step=step))
            outcome = replay(
                model, self._arrivals(mine, engine, model), f"{seed} {number}", conditions
            )
            counted = (mine.at_s >= 0) & ~outcome.rejected
            latency_s = getattr(outcome, metric)
            if metric == "e2e_s":
                # The front-end model assumes clients that read fast.
                latency_s = latency_s + np.fmax(mine.delivery_s - outcome.delivery_s, 0.0)
            found_s.append(latency_s[counted])
            rows.append(mine.row[counted])
        return ReplayedLatencies(np.concatenate(found_s), np.concatenate(rows))

    def _requests(self, of: RangeTraffic) -> WindowRequests:
        parts = []
        recorded = of.recorded
        names = np.array([*recorded.tenants], dtype=object)
        adapters = np.array([*recorded.adapters, ""], dtype=object)
        for number, (engine, arrivals, rows) in enumerate(
            zip(recorded.engines, of.traffic.arrivals, of.traffic.rows, strict=True)
        ):
            name = (engine.replica, engine.engine)
            if name not in self._names:
                continue
            if of is not self.window:
                number = self._names.index(name)
            n = len(arrivals)
            cached, acceptance = arrivals.cached_tokens, arrivals.acceptance
            assert arrivals.frontend_s is not None
            assert arrivals.held_s is not None
            assert arrivals.streamed is not None
            assert arrivals.tenant is not None
            transfer_s = np.minimum(transfers_of(recorded)[rows], arrivals.held_s)
            adapter = np.full(n, -1) if arrivals.adapter is None else arrivals.adapter
            grammar_s = np.nan_to_num(recorded.column("grammar_s")[rows])
            parts.append(
                WindowRequests(
                    at_s=arrivals.received_s - recorded.lead_s,
                    prompt_tokens=arrivals.prompt_tokens,
                    output_tokens=arrivals.output_tokens,
                    cached_tokens=np.zeros(n, np.int64) if cached is None else cached,
                    frontend_s=arrivals.frontend_s * (np.nan if self._models_front_end else 1.0),
                    transfer_s=transfer_s,
                    grammar_s=grammar_s,
                    otherwise_held_s=np.maximum(arrivals.held_s - transfer_s - grammar_s, 0.0),
                    delivery_s=np.nan_to_num(recorded.column("delivery_s")[rows]),
                    streamed=arrivals.streamed,
                    loaded=recorded.column("external_cached_tokens")[rows] > 0,
                    acceptance=np.zeros(n) if acceptance is None else acceptance,
                    tenant=names[arrivals.tenant],
                    adapter=adapters[adapter],
                    engine=np.full(n, number),
                    row=rows,
                    group=np.full(n, -1),
                )
            )
        return WindowRequests.joined(parts)

    def _in_parts(self, engine: IntArray, at_s: FloatArray) -> IntArray:
        """The part of each request's engine that was running at the time of the request: (n,)."""
        if len(set(self._names)) == len(self._names):
            return engine
        found = engine.copy()
        from_s = self._from_s - self.window.recorded.lead_s
        for name in set(self._names):
            parts = np.array([place for place, each in enumerate(self._names) if each == name])
            mine = np.isin(engine, parts)
            place = np.searchsorted(from_s[parts], at_s[mine], side="right") - 1
            found[mine] = parts[np.maximum(place, 0)]
        return found

    def _mixed(self, to_reset: Collection[int]) -> WindowRequests:
        parts = [self._window_requests.take(~np.isin(self._window_requests.group, list(to_reset)))]
        for place in to_reset:
            if self.factors[place].kind in RATES:
                parts += self._at_baseline_rate(place)
        mixed = WindowRequests.joined(parts)
        for place in to_reset:
            factor = self.factors[place]
            if factor.kind is FactorKind.CACHE_HITS:
                mixed = self._cached_as_in_baseline(mixed, to_reset)
            elif factor.kind in LENGTHS:
                mixed = self._with_baseline_lengths(mixed, factor)
            elif factor.kind is FactorKind.TRANSFERS:
                own = mixed.row >= 0
                quicker = np.where(own, self._quicker_link, 1.0)
                mixed = replace(mixed, transfer_s=mixed.transfer_s * quicker)
            elif factor.kind is FactorKind.ACCEPTANCE:
                # Unlike other columns, the acceptance rate is replaced for requests of any length.
                mixed = self._ranked(mixed, factor, "acceptance", _is_own)
        mixed = replace(mixed, engine=self._routed(mixed, to_reset))
        new_hits = any(self.factors[place].kind is FactorKind.CACHE_HITS for place in to_reset)
        if self._evictions is not None and self._evictions.factor in to_reset and not new_hits:
            mixed = self._without_evictions(mixed, self._evictions)
        return replace(
            mixed, cached_tokens=np.minimum(mixed.cached_tokens, mixed.prompt_tokens - 1)
        )

    def _at_baseline_rate(self, place: int) -> list[WindowRequests]:
        """The requests of a group at the baseline's times of arrival. Their prompt and output
        lengths are those of the window's requests. In a group that is defined by length, they are
        those of the baseline's requests."""
        usual = self._baseline_requests.take(self._baseline_requests.group == place)
        n = len(usual.at_s)
        usual = replace(usual, frontend_s=np.full(n, np.nan), row=-1 - usual.row)
        if self.factors[place].kind is not FactorKind.RATE:
            return [usual]
        parts = []
        for tenant in np.unique(usual.tenant):
            mine = usual.take(usual.tenant == tenant)
            pool = np.flatnonzero(
                (self._window_requests.group == place) & (self._window_requests.tenant == tenant)
            )
            if pool.size:
                drawn = self._window_requests.take(self._drawn_near(pool, mine.at_s))
                mine = replace(
                    drawn,
                    at_s=mine.at_s,
                    frontend_s=mine.frontend_s,
                    engine=self._in_parts(drawn.engine, mine.at_s),
                )
            parts.append(mine)
        return parts

    def _drawn_near(self, pool: IntArray, at_s: FloatArray) -> IntArray:
        """Draw one of the window's requests in `pool` for each time `at_s`: (n,).

        About `NEIGHBOURS` requests that arrived nearest to the time are candidates. So the requests
        of a short burst get only its part of the time. They may differ from the other requests:
        for example, their prompts are cached.
        """
        pool = pool[np.argsort(self._window_requests.at_s[pool], kind="stable")]
        place = np.searchsorted(self._window_requests.at_s[pool], at_s)
        place += self._chance.integers(-NEIGHBOURS // 2, NEIGHBOURS // 2, at_s.size)
        return pool[np.clip(place, 0, pool.size - 1)]

    def _with_baseline_lengths(self, mixed: WindowRequests, factor: Factor) -> WindowRequests:
        if factor.kind is FactorKind.PROMPTS:
            before = mixed.prompt_tokens
            mixed = self._ranked(mixed, factor, "prompt_tokens")
            ratio = np.where(mixed.loaded, mixed.prompt_tokens / before, 1.0)
            cached = np.rint(mixed.cached_tokens * ratio).astype(np.int64)
            return replace(mixed, transfer_s=mixed.transfer_s * ratio, cached_tokens=cached)
        if factor.kind is FactorKind.DELIVERY:
            return self._ranked(mixed, factor, "delivery_s", _is_own)
        if factor.kind is FactorKind.GRAMMAR:
            return self._ranked(mixed, factor, "grammar_s", _is_own)
        if factor.kind is FactorKind.ADAPTERS:
            return replace(mixed, adapter=self._adapters_as_in_baseline(mixed))
        before = mixed.output_tokens
        mixed = self._ranked(mixed, factor, "output_tokens")
        # The delivery time of a slow client is proportional to the number of tokens.
        longer = mixed.output_tokens / before
        return replace(mixed, delivery_s=mixed.delivery_s * longer)

    def _ranked(
        self,
        mixed: WindowRequests,
        factor: Factor,
        name: str,
        can_change: Callable[[WindowRequests], BoolArray] | None = None,
    ) -> WindowRequests:
        """Replace each value in the column `name` by the baseline value with the same rank among
        the tenant's requests.

        Args:
            can_change: returns which requests get another value. Default: `_can_change_length`.
        """
        can_change = can_change or self._can_change_length
        found = getattr(mixed, name).astype(np.float64)
        now, usual = (
            each.take(can_change(each)) for each in (self._window_requests, self._baseline_requests)
        )
        of_now, of_usual = (getattr(each, name).astype(np.float64) for each in (now, usual))
        for tenant in np.unique(now.tenant) if factor.tenant is None else [factor.tenant]:
            source, target = of_now[now.tenant == tenant], of_usual[usual.tenant == tenant]
            its = can_change(mixed) & (mixed.tenant == tenant)
            if min(source.size, target.size) >= MIN_REQUESTS:
                found[its] = self._at_rank(found[its], source, target)
        if name.endswith("_tokens"):
            found = np.maximum(np.rint(found), 1)
        return replace(mixed, **{name: found.astype(getattr(mixed, name).dtype)})

    def _at_rank(self, values: FloatArray, source: FloatArray, target: FloatArray) -> FloatArray:
        source, target = np.sort(source), np.sort(target)
        low, high = (np.searchsorted(source, values, side) for side in ("left", "right"))
        rank = (low + self._chance.random(len(values)) * (high - low)) / len(source)
        return values_at(rank, target)

    def _can_change_length(self, requests: WindowRequests) -> BoolArray:
        """Return which requests may get another length: the window's own requests in the counted
        range, except groups that are defined by length."""
        kinds = (FactorKind.LONG_PROMPTS, FactorKind.LONG_OUTPUTS)
        long = [place for place, each in enumerate(self.factors) if each.kind in kinds]
        return np.asarray(_is_own(requests) & ~np.isin(requests.group, long))

    def _cached_as_in_baseline(
        self, mixed: WindowRequests, to_reset: Collection[int]
    ) -> WindowRequests:
        """Give each prompt the cached share of a baseline request.

        The baseline request is of the same tenant and has a similar length. The share is reduced by
        evictions whose cause is not reset.

        If prompts became longer and their length is not reset, the additional tokens are assumed to
        be uncached. Each request then gets the cached tokens of the baseline request whose prompt
        length has the same rank.
        """
        kept = np.ones(len(mixed.at_s))
        found = self._evictions
        # New prompts also fill the cache. More requests evict prefixes only together with them.
        ended = [*to_reset, *self._places_of(FactorKind.RATE)]
        if found is not None and found.factor not in ended:
            kept = found.kept[mixed.engine]
        longer = self._places_of(FactorKind.PROMPTS)
        stay = [self.factors[place] for place in longer if place not in to_reset]
        now, usual = (
            each.take(self._can_change_length(each))
            for each in (self._window_requests, self._baseline_requests)
        )
        cached = mixed.cached_tokens.copy()
        for tenant in np.unique(mixed.tenant):
            source = usual.take(usual.tenant == tenant)
            its = np.flatnonzero(self._can_change_length(mixed) & (mixed.tenant == tenant))
            if len(source.at_s) < MIN_REQUESTS:
                continue
            source = source.take(np.argsort(source.prompt_tokens, kind="stable"))
            lengths = mixed.prompt_tokens[its]
            same_rank = any(each.tenant in (None, tenant) for each in stay)
            if same_rank:
                of_now = np.sort(now.prompt_tokens[now.tenant == tenant])
                rank = np.searchsorted(of_now, lengths) / max(of_now.size, 1)
                place = (rank * len(source.at_s)).astype(np.int64)
            else:
                place = np.searchsorted(source.prompt_tokens, lengths)
            place += self._chance.integers(-NEIGHBOURS // 2, NEIGHBOURS // 2, its.size)
            place = np.clip(place, 0, len(source.at_s) - 1)
            whole = source.prompt_tokens[place] if same_rank else lengths
            ratio = kept[its] * source.cached_tokens[place] / source.prompt_tokens[place]
            cached[its] = np.rint(ratio * whole)
        return replace(mixed, cached_tokens=cached)

    def _places_of(self, kind: FactorKind) -> list[int]:
        return [place for place, each in enumerate(self.factors) if each.kind is kind]

    def _without_evictions(self, mixed: WindowRequests, found: Evictions) -> WindowRequests:
        """Raise the cached share of each request's repeated tokens to the share in the baseline."""
        own = np.flatnonzero(self._can_change_length(mixed))
        repeated = found.repeated_ratio[mixed.row[own]] * mixed.prompt_tokens[own]
        cached = mixed.cached_tokens.copy()
        cached[own] = np.maximum(cached[own], np.rint(found.usually_kept * repeated))
        return replace(mixed, cached_tokens=cached)

    def _adapters_as_in_baseline(self, mixed: WindowRequests) -> NDArray[np.object_]:
        """Give each request the adapter of a random baseline request of the same tenant: (n,)."""
        found = mixed.adapter.copy()
        usual = self._baseline_requests
        for tenant in np.unique(usual.tenant):
            its = _is_own(mixed) & (mixed.tenant == tenant)
            source = usual.adapter[usual.tenant == tenant]
            found[its] = self._chance.choice(source, int(its.sum()))
        return found

    def _routed(self, mixed: WindowRequests, to_reset: Collection[int]) -> IntArray:
        """The engine of each request: (n,).

        If the routing is a factor, only this factor changes the engines of requests. If it is not,
        an engine that is reset gets its share of the baseline, because the router avoided it only
        while it was slow."""
        if any(each.kind is FactorKind.ROUTING for each in self.factors):
            if not any(self.factors[place].kind is FactorKind.ROUTING for place in to_reset):
                return mixed.engine
            in_turn = in_baseline_shares(mixed, self._baseline_requests, len(self._names))
            return np.where(mixed.at_s < 0, mixed.engine, self._in_parts(in_turn, mixed.at_s))
        reset = [self.factors[place] for place in to_reset]
        usual = [
            number
            for number, name in enumerate(self._names)
            if any(each.kind in SERVERS and each.is_of(*name) for each in reset)
        ]
        if not usual:
            return mixed.engine
        first_part = np.array([self._names.index(name) for name in self._names])
        whole, window, baseline = (
            replace(each, engine=first_part[each.engine])
            for each in (mixed, self._window_requests, self._baseline_requests)
        )
        models = [each.start.model for each in self.window.recorded.engines]
        found = with_usual_servers(whole, window, baseline, models, usual, self._chance)
        stays = found == whole.engine
        return np.where(stays, mixed.engine, self._in_parts(found, mixed.at_s))

    def _server(
        self, number: int, engine: RecordedEngine, chosen: Sequence[Factor]
    ) -> tuple[ServerModel, Conditions]:
        model = engine.model
        now = self.window.traffic.conditions[number]
        place = self._baseline_places[number]
        if place is None:
            return model, now
        usual = self.baseline.recorded.engines[place].model
        usually = self._baseline_conditions[place]

        def is_reset(kind: FactorKind) -> bool:
            return any(
                each.kind is kind and each.is_of(engine.replica, engine.engine) for each in chosen
            )

        config = model.engine
        if is_reset(FactorKind.CONFIG):
            config = usual.engine
        elif is_reset(FactorKind.PACE):
            config = replace(
                config,
                step=usual.engine.step,
                step_noise_quantiles=usual.engine.step_noise_quantiles,
            )
        if is_reset(FactorKind.BLOCKS) or is_reset(FactorKind.OUTGROWN_BLOCKS):
            config = replace(
                config,
                num_gpu_blocks=usual.engine.num_gpu_blocks,
                max_model_len=usual.engine.max_model_len,
            )
        front_end = usual.front_end if is_reset(FactorKind.FRONT_END) else model.front_end
        paces = usually if is_reset(FactorKind.CONFIG) or is_reset(FactorKind.PACE) else now
        stalls_are_reset = is_reset(FactorKind.STALLS) or is_reset(FactorKind.ADAPTERS)
        stalls = usually if stalls_are_reset else now
        return (
            replace(model, engine=config, front_end=front_end),
            Conditions(stalls=(stalls.stalls_of(0),), paces=(paces.paces_of(0),)),
        )

    def _baseline_shifts(self) -> list[Shift]:
        """Time shifts that move the baseline's stalls and paces into the window. If the window is
        longer than the baseline, the baseline is repeated."""
        lead_s = self.window.recorded.lead_s
        seconds = self.baseline.seconds
        first_s = self.baseline.recorded.lead_s + max(seconds - self.window.seconds, 0.0)
        found, done_s = [], 0.0
        while done_s < self.window.seconds:
            length_s = min(seconds, self.window.seconds - done_s)
            found.append(Shift(first_s, first_s + length_s, lead_s + done_s - first_s))
            done_s += length_s
        return found

    def _arrivals(
        self, mine: WindowRequests, engine: RecordedEngine, model: ServerModel
    ) -> Arrivals:
        speculates = engine.arrivals.acceptance is not None
        adapter = None
        if model.engine.max_loras:
            names, adapter = np.unique(mine.adapter, return_inverse=True)
            adapter[names[adapter] == ""] = -1
        return Arrivals(
            received_s=np.maximum(mine.at_s + self.window.recorded.lead_s, 0.0),
            prompt_tokens=mine.prompt_tokens,
            output_tokens=mine.output_tokens,
            cached_tokens=mine.cached_tokens,
            frontend_s=mine.frontend_s,
            held_s=mine.held_s,
            streamed=mine.streamed,
            acceptance=mine.acceptance if speculates else None,
            adapter=adapter,
        )


def _is_own(requests: WindowRequests) -> BoolArray:
    """Return which requests copy a request of the window and arrive in the counted range. Requests
    copied from the baseline are excluded."""
    return np.asarray((requests.row >= 0) & (requests.at_s >= 0))


def transfers_of(recorded: Recorded) -> FloatArray:
    """The seconds for which each request waited for a KV transfer: (n,).

    Rows of older plugins report only the whole time for which vLLM held a request back. For these
    rows, the whole time is returned.
    """
    loading_s = recorded.column("kv_load_s")
    return np.nan_to_num(np.where(np.isnan(loading_s), recorded.column("queue_held_s"), loading_s))


def _link_ratio(window: Recorded, baseline: Recorded) -> float:
    """Return the KV transfer time per token in the baseline, divided by its value in the window.
    Each value is the median over the requests with transfers. The result is 1 if a range has no
    transfers."""
    each_s = []
    for recorded in (window, baseline):
        tokens = np.nan_to_num(recorded.column("external_cached_tokens"))
        some = (tokens > 0) & recorded.counted
        if not some.any():
            return 1.0
        each_s.append(float(np.median(transfers_of(recorded)[some] / tokens[some])))
    return each_s[1] / each_s[0] if each_s[0] > 0 else 1.0


def _repeated(requests: WindowRequests, seconds: float, wanted_s: float) -> WindowRequests:
    """Repeat requests until they fill a range of the wanted length. If they fill more, keep only
    the latest."""
    if seconds >= wanted_s:
        last = requests.take(requests.at_s >= seconds - wanted_s)
        return replace(last, at_s=last.at_s - (seconds - wanted_s))
    parts = [
        replace(requests, at_s=requests.at_s + number * seconds)
        for number in range(ceil(wanted_s / seconds))
    ]
    whole = WindowRequests.joined(parts)
    return whole.take(whole.at_s < wanted_s)
