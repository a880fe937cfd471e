"""A bill as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from analysis.stored_data import stored_data
from cli.render import text
from telemetry import time_text
from telemetry.billing_data import GAP_S
from telemetry.percentages import percent
from telemetry.requests import PricedBy
from telemetry.window import Window

if TYPE_CHECKING:
    from analysis.cost import CostAnswer, SelectedRequests
    from analysis.cost_sides import Sides
    from cost.bill import Bill, Unpriced
    from cost.bill_lines import BillLine
    from cost.energy import GroupEnergy
    from cost.engine_costs import EngineCost
    from cost.managed import BreakEven

MAX_GROUPS = 40
MAX_UNPRICED = 5
MAX_RATES = 4
MAX_ENGINES = 16

_HOW = {
    PricedBy.LEDGER: "by share of each engine step",
    PricedBy.TOKENS: "by weighted tokens: no step ledger (install tailspan-vllm)",
}


def lines(found: "CostAnswer", where: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the lines. The labels in `where` selected the requests."""
    bill = found.bill
    window = Window(bill.from_unix_ns, bill.to_unix_ns)
    yield f"Cost of serving, {text.span(window)}"
    if found.billing_data.simulated:
        yield "simulated data"
    yield ""
    total = bill.total
    if total is not None:
        yield from _sum(total, bill)
        if found.selected is not None:
            yield _selected(found.selected, where, total)
        yield from _by_engine(bill.by_engine)
        yield from _by_side(found.sides, total)
        yield from _by_group(found)
        yield from _managed(found, total)
        yield from _energy(found)
    yield from _notes(found)


def nothing(engine: Engine, window: Window) -> str:
    """Why there is no bill, and what to do."""
    found = f"No engine reported {text.span(window)}, so there is no bill."
    newest = stored_data(engine).newest_unix_ns
    if newest is None:
        return f"{found} Nothing has been received yet: connect a server with tailspan up."
    return (
        f"{found} The newest telemetry is from {time_text.moment(newest)} UTC:"
        f" try --from {(newest - 900 * 10**9) // 10**9} --to {newest // 10**9 + 1}."
    )


def _sum(total: "BillLine", bill: "Bill") -> Iterator[str]:
    each = (
        f"{text.usd(total.requests_usd / total.requests * 1_000)} per 1,000 without idle time"
        if total.requests
        else ""
    )
    how = _HOW[total.priced_by] if total.priced_by is not None else ""
    rows = [
        ("requests", total.requests_usd, f"{total.requests:,}, {each}; {how}".rstrip("; ")),
        ("recomputed", total.wasted_usd, "work repeated after an eviction"),
        ("idle", total.idle_usd, "engines up, between steps"),
        *(
            [("loading", total.loading_usd, "engines started, not ready yet")]
            if total.loading_usd
            else []
        ),
        ("unbilled", total.unbilled_usd, _unbilled(total)),
    ]
    if total.idle_usd is None:
        rows[2] = ("idle", None, "unknown: no engine reports its busy time")
    last = f"{total.wall_s / 3_600:,.2f} engine-hours: {_engines(bill.engines)} at a time,"
    last += f" {text.usd(bill.usd_per_hour)} per hour"
    parts = [(name, _part(usd, total.bill_usd), why) for name, usd, why in rows]
    shown = [
        [f"  {name}", text.usd(part), _share(part, total.bill_usd), why]
        for name, part, why in parts
    ]
    shown.append(["= bill", text.usd(total.bill_usd), "", last])
    yield from _aligned_rows(shown)
    if total.lost_usd > 0:
        yield (
            f"  The requests' cost includes {text.usd(total.lost_usd)}"
            f" ({_share(total.lost_usd, total.requests_usd)}) for aborted or failed answers."
        )
    yield ""
    named = sorted(
        {
            f"{text.label(rate.what)} {text.usd(rate.usd_per_hour / rate.devices)} per hour"
            f" ({rate.origin})"
            for rates in bill.rates.values()
            for rate in rates
        }
    )
    if named:
        more = f" and {len(named) - MAX_RATES} more" if len(named) > MAX_RATES else ""
        yield (
            f"Priced at {'; '.join(named[:MAX_RATES])}{more}. Set your prices with --prices FILE."
        )


def _by_engine(found: "Sequence[EngineCost]") -> Iterator[str]:
    from cost.engine_costs import of_replicas_with_several_engines

    several = of_replicas_with_several_engines(found)
    if not several:
        return
    yield ""
    yield "Replicas with several engines: the cost of each engine"
    yield from _aligned_rows(
        [
            [
                f"  {text.printable(each.replica, 40)}, engine {each.engine}",
                text.usd(each.bill_usd),
                _share(each.idle_usd, each.bill_usd),
                "idle",
            ]
            for each in several[:MAX_ENGINES]
        ]
    )
    if len(several) > MAX_ENGINES:
        yield f"  {len(several) - MAX_ENGINES} more: see --format json."


def _by_side(found: "Sides", total: "BillLine") -> Iterator[str]:
    if not found.sides:
        return
    yield ""
    yield "Time in steps, prefill and decode"
    shown = []
    for side in found.sides:
        name = f"{side.name} ({text.printable(side.role, 20)})" if side.role else side.name
        used = [
            f"{title} {percent(ratio, 0, ' %')}"
            for title, ratio in (("MFU", side.mfu), ("MBU", side.mbu))
            if ratio is not None
        ]
        hours = f"{side.busy_s / 3_600:,.2f} engine-hours"
        usd = text.usd(side.usd)
        shown.append(
            [f"  {name}", usd, _share(side.usd, total.bill_usd), ", ".join([hours, *used])]
        )
    if abs(found.undivided_usd) > 0.005:
        why = "no step model in these hours"
        usd = text.usd(found.undivided_usd)
        shown.append(["  undivided", usd, _share(found.undivided_usd, total.bill_usd), why])
    yield from _aligned_rows(shown)


def _selected(found: "SelectedRequests", where: Mapping[str, str | None], total: "BillLine") -> str:
    labels = ", ".join(f"{name}={text.printable(value or '', 60)}" for name, value in where.items())
    requests = "1 request" if found.requests == 1 else f"{found.requests:,} requests"
    if found.usd is None:
        return f"{labels}: {requests}, without a cost."
    hourly = "" if found.usd_per_hour is None else f", {text.usd(found.usd_per_hour)} an hour"
    return (
        f"{labels}: {text.usd(found.usd)} ({_share(found.usd, total.bill_usd)} of the bill{hourly})"
        f" for {requests}."
    )


def _engines(number: float) -> str:
    return "1 engine" if f"{number:,.3g}" == "1" else f"{number:,.3g} engines"


def _unbilled(total: "BillLine") -> str:
    if total.unbilled_usd < -total.bill_usd / 20_000:
        return "negative: requests were billed more time than their engines were busy"
    return "step time of requests that have not ended, or whose step times were not reported"


def _by_group(found: "CostAnswer") -> Iterator[str]:
    from analysis.cost import usd_per_hour

    bill = found.bill
    energy = any(found.group_energy)
    managed = any(each is not None for each in found.group_managed_usd)
    whole = sum(group.usd or 0.0 for group in bill.groups)
    header = [
        *bill.by,
        "cost",
        "share",
        "an hour",
        *(["managed"] if managed else []),
        "requests",
        "per 1,000",
        "recomputed",
        "lost",
        "per 1M tokens in",
        "out",
        *(["Wh"] if energy else []),
    ]
    rows = []
    each_group = zip(bill.groups, found.group_energy, found.group_managed_usd, strict=True)
    for group, drawn, managed_usd in list(each_group)[:MAX_GROUPS]:
        labels = [
            time_text.moment(int(label or 0) * 10**9)[:16] if name == "hour" else text.label(label)
            for name, label in zip(bill.by, group.labels, strict=True)
        ]
        rows.append(
            [
                *labels,
                text.usd(group.usd),
                _share(group.usd, whole),
                text.usd(usd_per_hour(group.usd, bill)),
                *([text.usd(managed_usd)] if managed else []),
                text.count(group.requests),
                text.usd(_times_1k(group.usd_per_request)),
                text.usd(group.wasted_usd or None),
                text.usd(group.lost_usd or None),
                text.usd(_times_1k(group.usd_per_1k_in)),
                text.usd(_times_1k(group.usd_per_1k_out)),
                *([_watt_hours(drawn)] if energy else []),
            ]
        )
    if not rows:
        return
    yield ""
    yield from text.table(header, rows, left=len(bill.by), keep=len(bill.by) + 4)
    if len(bill.groups) > MAX_GROUPS:
        yield f"… and {len(bill.groups) - MAX_GROUPS:,} more: --format json"


def _watt_hours(drawn: "GroupEnergy | None") -> str:
    return text.UNKNOWN if drawn is None else f"{drawn.joules / 3_600:,.3g}"


def _times_1k(usd: float | None) -> float | None:
    return None if usd is None else usd * 1_000


def _managed(found: "CostAnswer", total: "BillLine") -> Iterator[str]:
    if not found.compared and not found.not_compared:
        return
    yield ""
    for each in found.compared:
        yield (
            f"Managed: {text.label(each.model)}'s tokens would have cost {text.usd(each.usd)} at"
            f" {each.at.provider} {each.at.model} (genai-prices)."
        )
    for why in found.not_compared[:3]:
        yield f"Managed: {text.printable(why, 300)}"
    even = found.break_even
    if even is None:
        return
    now = requests_per_s(found)
    yield (
        f"Break-even at this mix: {even.rps:,.3g} requests/s"
        f" ({even.requests_per_month:,.3g} per month, {even.tokens_per_month:,.3g} tokens);"
        f" now {now:,.3g}."
    )
    yield f"  {compliance_text(even)}"


def requests_per_s(found: "CostAnswer") -> float:
    """The rate averaged over the time in which an engine was up."""
    up_s = found.bill.uptime.up_s or (found.bill.to_unix_ns - found.bill.from_unix_ns) / 1e9
    return sum(each.tokens.requests for each in found.compared) / up_s


def compliance_text(even: "BreakEven") -> str:
    """State whether the objectives can be met at the break-even rate."""
    kept = even.sustainable
    if not kept.known:
        counted = f"only {kept.requests:,}" if kept.requests else "no"
        return (
            f"It is unknown whether the SLOs would be met at that rate: {counted} requests of this"
            " range were evaluated against an SLO. A longer range may have more."
        )
    if kept.rps is None:
        return (
            f"{kept.requests:,} requests were evaluated. No rate in this range certainly met the"
            " SLOs, so it is unknown whether these engines can reach that rate."
        )
    if even.reachable:
        return (
            f"In this range, the SLOs were met at up to {kept.rps:,.3g}/s, so these engines can"
            " reach that rate."
        )
    return (
        f"In this range, the SLOs were met at up to {kept.rps:,.3g}/s, and higher rates missed them"
        " or did not occur. So it is unknown whether these engines can reach that rate; tailspan"
        " what-if --sweep rate=1x..4x predicts it."
    )


def _energy(found: "CostAnswer") -> Iterator[str]:
    energy = found.energy
    if energy is None or not energy.joules:
        return
    yield ""
    co2 = (
        ""
        if energy.co2_g is None
        else f"; {_grams(energy.co2_g)} of CO₂ including the data centre's overhead"
    )
    how = "" if energy.fitted else ", estimated from idle time"
    yield (
        f"Energy: {energy.kwh:,.3g} kWh in the GPUs, {_share(energy.idle_j, energy.joules)} of it"
        f" idle{how}{co2}."
    )


def _notes(found: "CostAnswer") -> Iterator[str]:
    bill = found.bill
    if bill.unpriced:
        yield ""
        yield from _unpriced(bill.unpriced)
    if bill.uptime.gaps_s >= 1:
        yield (
            f"Not billed: {bill.uptime.gaps_s / 3_600:,.2f} hours in which an engine sent no sample"
            " for more than a minute."
        )
    if bill.uptime.contradicted_s > GAP_S:
        yield (
            f"Engines report {bill.uptime.contradicted_s / 3_600:,.2f} hours more busy time than"
            " elapsed time. The bill leaves out these hours. Two servers probably share a name"
            " (tailspan doctor)."
        )
    if found.billing_data.engines_from_unix_ns > bill.from_unix_ns:
        yield (
            "Engine samples from before"
            f" {time_text.moment(found.billing_data.engines_from_unix_ns)}"
            " UTC are deleted (tailspan up --keep-hours). For that time the bill contains"
            " requests and recomputation, but no idle time."
        )
    if not found.billing_data.apportioned:
        yield (
            "The whole cost of a request counts in the hour of its receipt. The rows that would"
            " divide it between two hours are deleted."
        )
    if found.billing_data.overflowed:
        yield (
            f"{found.billing_data.overflowed:,} requests are counted as _other in a label, because"
            " there are too many label values. Each named group may have more requests than shown."
        )


def _unpriced(several: "Sequence[Unpriced]") -> Iterator[str]:
    for each in several[:MAX_UNPRICED]:
        requests = "1 request is" if each.requests == 1 else f"{each.requests:,} requests are"
        yield f"No price: {_why_unpriced(each)}; {requests} not in the bill."
    if len(several) > MAX_UNPRICED:
        yield f"… and {len(several) - MAX_UNPRICED:,} more servers."
    running = [each for each in several if each.wall_s]
    if len(running) < len(several):
        yield (
            "To see an engine, install tailspan-vllm in its environment, or scrape its /metrics:"
            " tailspan up --scrape http://HOST:8000/metrics."
        )
    if not running:
        return
    yield "Set a price: --prices FILE (or TAILSPAN_PRICES) with, for example,"
    device = next((each.device for each in running if each.device), None)
    if device is not None:
        yield f'  devices: [{{match: "{text.printable(device, 60)}", usd_per_hour: 1.50}}]'
    else:
        name = text.printable(running[0].replica, 60)
        yield f'  replicas: [{{match: "{name}", usd_per_hour: 1.50}}]'


def _why_unpriced(each: "Unpriced") -> str:
    if not each.replica:
        return "requests from client spans have no server name"
    name = text.label(each.replica)
    if not each.wall_s:
        return f"no engine of {name} reported"
    if each.device is None:
        return f"{name} reports no device"
    return f"{name} runs on {text.printable(each.device, 60)!r}, which has no price"


def _part(usd: float | None, whole: float) -> float | None:
    """A part of the bill. It is 0 if the part is too small to show."""
    return 0.0 if usd is not None and abs(usd) < whole / 20_000 else usd


def _share(part: float | None, whole: float) -> str:
    if part is None or not whole:
        return text.UNKNOWN
    return percent(part / whole, 1, " %")


def _grams(grams: float) -> str:
    return f"{grams / 1_000:,.3g} kg" if grams >= 1_000 else f"{grams:,.3g} g"


def _aligned_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    for name, usd, share, why in rows:
        yield (
            f"{name.ljust(widths[0])}  {usd.rjust(widths[1])}  {share.rjust(widths[2])}  {why}"
        ).rstrip()
