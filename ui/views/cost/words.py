"""The texts and tables of the Cost page. Pure HTML. External text is escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Final

from analysis.cost import usd_per_hour
from analysis.cost_sides import Sides
from analysis.range_costs import RangeCosts
from cost.bill import Bill, Unpriced
from cost.bill_lines import BillLine
from cost.energy import Energy
from cost.engine_costs import EngineCost
from cost.groups import BillGroup
from cost.managed import ManagedCost
from telemetry.billing_data import GAP_S
from telemetry.requests import PricedBy
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import colours, wording
from ui.kit.tables import table
from ui.kit.terms import term

MAX_ROWS: Final = 40
MAX_UNPRICED: Final = 5
LARGE: Final = 0.5
"""The page mentions idle time above this share of the bill."""
NOTHING: Final = 0.005
"""A smaller share of the bill counts as zero. It can result from reading only whole minutes."""
UNKNOWN_NAME: Final = "unknown"


def sentence(found: RangeCosts, total: BillLine, view: View) -> str:
    """The bill, and the share of the bill that the selected requests caused."""
    length_s = (found.window.to_unix_ns - found.window.from_unix_ns) / 1e9
    of = ""
    if "replica" in view.equals:
        of = f" on <b>{wording.for_html(view.equals['replica'])}</b>"
    several = [
        f"<b>{_share(total.requests_usd, total)}</b> {_for_requests(total)}",
        f"{_share(total.wasted_usd, total)} {term('recomputed', 'recomputed')}"
        if total.wasted_usd > 0
        else "",
        f"<b>{_share(total.idle_usd, total)}</b> {term('idle', 'idle')}"
        if total.idle_usd is not None
        else "",
        f"{_share(total.loading_usd, total)} {term('loading', 'loading')}"
        if total.loading_usd > total.bill_usd / 200
        else "",
        f"{_share(total.unbilled_usd, total)} {term('unbilled', 'unbilled')}"
        if abs(total.unbilled_usd) > total.bill_usd / 200
        else "",
    ]
    text = (
        f"Serving{of} cost <b>{wording.usd(total.bill_usd)}</b> in {wording.span(length_s)}:"
        f" {', '.join(filter(None, several))}."
    )
    others = {name: value for name, value in view.equals.items() if name != "replica"}
    if others:
        text += f" {_of_these(found, total, others)}"
    number = wording.number(found.bill.engines)
    engines = "1 engine" if number == "1" else f"{number} engines"
    hourly = wording.usd(found.bill.usd_per_hour)
    return f"{text} <small>{engines} at a time, {hourly} per hour</small>"


def _for_requests(total: BillLine) -> str:
    if not total.requests:
        return "for requests that have not ended"
    each = wording.usd(total.requests_usd / total.requests * 1_000)
    return f"for {wording.counted(total.requests, 'request')} ({each} per 1,000, without idle time)"


def sides(found: Sides, total: BillLine) -> str:
    """Cost, time in steps, MFU (share of peak FLOP/s) and MBU (share of peak bandwidth) of prefill
    and decode."""
    rows = []
    for each in found.sides:
        role = f" <small>{wording.for_html(each.role, 20)}</small>" if each.role else ""
        used = (wording.percent(each.mfu), wording.percent(each.mbu))
        rows.append(
            (
                f"{each.name}{role}",
                wording.usd(each.usd),
                _share(each.usd, total),
                wording.span(each.busy_s),
                *used,
            )
        )
    if abs(found.undivided_usd) > NOTHING * total.bill_usd:
        undivided = (wording.usd(found.undivided_usd), _share(found.undivided_usd, total))
        rows.append(("not divided <small>no step model</small>", *undivided, "", "", ""))
    heads = ("side", "cost", "share of the bill", "time in steps", "MFU", "MBU")
    return table(heads, rows, "short")


def engines(several: Sequence[EngineCost], total: BillLine) -> str:
    """The cost and the idle share of engines that share a replica."""
    rows = [
        (
            f"{wording.for_html(each.replica)}, engine {each.engine}",
            wording.usd(each.bill_usd),
            _share(each.bill_usd, total),
            wording.UNKNOWN if each.busy_s is None else wording.span(each.busy_s),
            _idle_share(each),
        )
        for each in several[:MAX_ROWS]
    ]
    heads = ("engine", "cost", "share of the bill", "time in steps", "idle")
    return table(heads, rows, "short")


def _idle_share(each: EngineCost) -> str:
    if each.idle_usd is None or not each.bill_usd:
        return wording.UNKNOWN
    return wording.percent(each.idle_usd / each.bill_usd)


def _of_these(found: RangeCosts, total: BillLine, equals: dict[str, str]) -> str:
    names = ", ".join(
        f"{wording.for_html(name)} {wording.for_html(value)}" for name, value in equals.items()
    )
    requests = wording.counted(found.requests, "request")
    if found.usd is None:
        return f"<b>{names}</b> had {requests}, without a cost."
    share = wording.exact_percent(found.usd / total.bill_usd) if total.bill_usd else ""
    return f"<b>{names}</b> cost <b>{wording.usd(found.usd)}</b> ({share}) for {requests}."


def advice(total: BillLine) -> str | None:
    """Advice about an unusually large part of the bill, or None."""
    if total.bill_usd <= 0:
        return None
    if (total.idle_usd or 0.0) > LARGE * total.bill_usd:
        return (
            "Most of the bill is idle time: fewer engines could do this work, or these engines "
            "could do more. The Overview page shows whether the SLOs allow fewer engines."
        )
    if total.wasted_usd > 0.05 * total.bill_usd:
        return (
            "More than 5 % of the bill is for recomputed work. A larger KV cache "
            "(--gpu-memory-utilization) or a smaller batch (--max-num-seqs) avoids evictions."
        )
    if total.requests_usd > 0 and total.lost_usd > 0.1 * total.requests_usd:
        return "More than 10 % of the requests' cost is for responses that were not delivered."
    return None


def rates(bill: Bill) -> str:
    """The prices of the engines, with their sources."""
    named = sorted(
        {
            f"{wording.for_html(rate.what, 60)} {wording.usd(rate.usd_per_hour / rate.devices)}"
            f" per hour ({wording.for_html(str(rate.origin), 80)})"
            for several in bill.rates.values()
            for rate in several
        }
    )
    if not named:
        return ""
    shown = "; ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    return f"Priced at {shown}. Set yours with <code>tailspan up --prices FILE</code>."


def payers(
    groups: Sequence[BillGroup],
    label: str,
    view: View,
    bill: Bill,
    managed_usd: Mapping[tuple[str | None, ...], float | None],
) -> str:
    """The cost per group, with bars and links to its requests.

    The keys of `managed_usd` are label values.
    """
    whole = sum(group.usd or 0.0 for group in groups)
    most = max((group.usd or 0.0 for group in groups), default=0.0)
    heads = [label, "cost", "share", "per hour", "managed", "requests", "per request"]
    heads += ["per 1,000 tokens in", "out", "recomputed", "lost"]
    rows = [
        _row(
            each,
            label,
            view,
            (whole, most),
            (usd_per_hour(each.usd, bill), managed_usd.get(each.labels)),
        )
        for each in groups[:MAX_ROWS]
    ]
    more = len(groups) - MAX_ROWS
    note = f"<p class='note'>… and {more:,} more in the CSV.</p>" if more > 0 else ""
    return table(heads, rows, "payers") + note


def _row(
    group: BillGroup,
    label: str,
    view: View,
    sizes_usd: tuple[float, float],
    beside_usd: tuple[float | None, float | None],
) -> tuple[str, ...]:
    whole, most = sizes_usd
    value = group.labels[0]
    name = UNKNOWN_NAME if value is None else wording.for_html(value)
    if value is not None:
        href = link(replace(view, page="requests", equals={**view.equals, label: value}))
        name = wording.anchor(href, name)
    width = 0.0 if not most else (group.usd or 0.0) / most * 100
    bar = f"<i style='width:{width:.1f}%;background:{colours.PAYERS[0]}'></i>"
    return (
        f"{name}{bar}",
        wording.usd(group.usd),
        wording.exact_percent(None if group.usd is None or not whole else group.usd / whole),
        *map(wording.usd, beside_usd),
        wording.count(group.requests)
        + (f" <small>{group.unpriced:,} unpriced</small>" if group.unpriced else ""),
        wording.usd(group.usd_per_request),
        wording.usd(group.usd_per_1k_in),
        wording.usd(group.usd_per_1k_out),
        wording.usd(group.wasted_usd) if group.wasted_usd else wording.UNKNOWN,
        wording.usd(group.lost_usd) if group.lost_usd else wording.UNKNOWN,
    )


def how_priced(groups: Sequence[BillGroup]) -> str:
    """A sentence if a cost was computed without the step ledger, or else an empty text."""
    methods = {method for group in groups for method in group.priced_by}
    if PricedBy.TOKENS not in methods:
        return ""
    some = "Some requests’" if PricedBy.LEDGER in methods else "Requests’"
    return (
        f"{some} cost is an estimate from their tokens, because their share of engine steps was"
        " not reported. To get exact costs, install tailspan-vllm in vLLM’s environment."
    )


def managed(compared: Sequence[ManagedCost], by_model: Sequence[BillGroup]) -> str:
    """The costs of each model, self-hosted and at a managed API."""
    own = {group.labels[0]: group.usd for group in by_model}
    rows = [
        (
            wording.for_html(each.model),
            wording.for_html(f"{each.at.provider} {each.at.model}", 60),
            wording.count(each.tokens.prompt),
            wording.count(each.tokens.cached),
            wording.count(each.tokens.output),
            wording.usd(own.get(each.model)),
            wording.usd(each.usd),
        )
        for each in compared
    ]
    heads = ["model", "compared with", "tokens in", "cached tokens in", "out"]
    return table([*heads, "self-hosted", "managed"], rows, "payers")


def against(found: RangeCosts, total: BillLine) -> str:
    """The bill and the price of the same tokens at a managed API, with the break-even rate."""
    there = sum(each.usd for each in found.compared)
    even = found.break_even
    if even is None:
        return f"The same tokens would have cost <b>{wording.usd(there)}</b> at managed APIs."
    now = now_rps(found)
    here = wording.usd(total.bill_usd)
    dearer = (
        f"less than the engines’ <b>{here}</b>"
        if there < total.bill_usd
        else f"more than the engines’ <b>{here}</b>"
    )
    text = (
        f"The same tokens would have cost <b>{wording.usd(there)}</b> at managed APIs,"
        f" {dearer} (idle time included). Self-hosting becomes cheaper at"
        f" <b>{wording.number(even.rps)} requests/s</b> of this mix; the rate now is"
        f" {wording.number(now)}."
    )
    if not even.sustainable.known:
        counted = f"only {even.sustainable.requests:,}" if even.sustainable.requests else "no"
        return (
            f"{text} It is unknown whether the SLOs would be met at that rate, because {counted}"
            " requests of this range were evaluated against an SLO. A longer range may have more."
        )
    if even.sustainable.rps is None:
        return (
            f"{text} {even.sustainable.requests:,} requests were evaluated. No rate in this range"
            " certainly met the SLOs, so it is unknown whether these engines can reach that rate."
        )
    kept = wording.number(even.sustainable.rps)
    if even.reachable:
        return (
            f"{text} In this range, the SLOs were met at up to {kept}/s, so these engines can reach"
            " that rate."
        )
    return (
        f"{text} In this range, the SLOs were met at up to {kept}/s, and higher rates missed them"
        " or did not occur. So it is unknown whether these engines can reach that rate. A sweep of"
        " the rate on What if predicts it."
    )


def now_rps(found: RangeCosts) -> float:
    """Requests per second during the time in which an engine was up."""
    up_s = found.bill.uptime.up_s or (found.window.to_unix_ns - found.window.from_unix_ns) / 1e9
    return sum(each.tokens.requests for each in found.compared) / up_s


def managed_example(models: Sequence[str]) -> str:
    """An example for the price file, which compares a model with a managed API."""
    name = wording.plain(models[0], 60) if models else "chat"
    return (
        f'managed:\n  - {{match: "{_yaml(name)}", provider: openrouter,'
        " model: meta-llama/llama-3.1-8b-instruct}\n"
    )


def price_example(unpriced: Sequence[Unpriced]) -> str:
    """An example of a price file, for the servers without a price."""
    devices = sorted({each.device for each in unpriced if each.device})
    if devices:
        entries = "".join(
            f'  - {{match: "{_yaml(wording.plain(each, 60))}", usd_per_hour: 1.50}}  # per device\n'
            for each in devices[:3]
        )
        return f"devices:\n{entries}"
    names = [each.replica for each in unpriced if each.replica] or ["*"]
    return (
        "replicas:\n"
        f'  - {{match: "{_yaml(wording.plain(names[0], 60))}", usd_per_hour: 1.50}}'
        "   # per engine, all its GPUs\n"
    )


def _yaml(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def without_price(unpriced: Sequence[Unpriced]) -> str:
    """The servers that have no price, and the reason."""
    reasons = []
    for each in unpriced[:MAX_UNPRICED]:
        what = (
            "reports no device"
            if each.device is None
            else f"runs on “{wording.for_html(each.device, 60)}”, which has no price"
        )
        name = wording.for_html(each.replica) if each.replica else "a server without a name"
        requests = wording.counted(each.requests, "request")
        reasons.append(f"<b>{name}</b> {what}, so the bill omits its {requests}")
    more = len(unpriced) - MAX_UNPRICED
    return "; ".join(reasons) + (f"; and {more:,} more servers" if more > 0 else "") + "."


def drawn(found: Energy) -> str:
    """The energy that the GPUs used, and the CO₂ that it caused."""
    idle = wording.percent(found.idle_j / found.joules)
    how = "" if found.fitted else ", estimated from idle time"
    grams = found.co2_g
    co2 = ""
    if grams is not None:
        size = (
            f"{wording.number(grams / 1_000)} kg"
            if grams >= 1_000
            else f"{wording.number(grams)} g"
        )
        co2 = f"; {size} of CO₂, including the data centre’s overhead"
    return f"Energy: {wording.number(found.kwh)} kWh in the GPUs, {idle} of it idle{how}{co2}."


def notes(found: RangeCosts, zone: tzinfo) -> list[str]:
    """Notes about time and requests that the bill omits or does not bill exactly."""
    sentences = []
    if found.bill.uptime.gaps_s >= 1:
        gaps = wording.span(found.bill.uptime.gaps_s)
        sentences.append(
            f"Not billed: {gaps} in which an engine sent no sample for more than a minute."
        )
    if found.bill.uptime.contradicted_s > GAP_S:
        beyond = wording.span(found.bill.uptime.contradicted_s)
        sentences.append(
            f"Engines report {beyond} more busy time than elapsed time. This time is not in the"
            " bill."
            " Two servers probably share a name (<code>tailspan doctor</code>)."
        )
    if found.engines_from_unix_ns > found.window.from_unix_ns:
        at = wording.clock(found.engines_from_unix_ns, zone, date=True)
        sentences.append(
            f"Data about engine time before {at} has expired (<code>tailspan up "
            "--keep-hours</code>)."
            " For that time the bill contains requests and recomputation, but no idle time."
        )
    if not found.apportioned:
        sentences.append(
            "The whole cost of a request counts in the hour of its receipt. The rows that would"
            " divide it between two hours have expired."
        )
    if found.overflowed:
        many = wording.counted(found.overflowed, "request")
        sentences.append(
            f"{many} are counted as _other in a label, because there are too many label values."
            " Each named group may have more requests than shown."
        )
    return sentences


def _share(part: float | None, total: BillLine) -> str:
    if part is None or total.bill_usd <= 0:
        return wording.UNKNOWN
    ratio = part / total.bill_usd
    return wording.percent(0.0 if -NOTHING < ratio < 0 else ratio)
