"""The questions as tools of the MCP server, with short answers for a language model."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from alerts.explorer_links import EXPLORER_KEY
from cli.questions.answer import answered
from cli.questions.declared import Parameter, QuestionCommand, questions
from cli.questions.explorer_pages import page_link
from cli.questions.reader import EVERYTHING, Reader
from cli.questions.refusal import QuestionRefused
from cli.questions.short_answer import DIGITS, MAX_CHARACTERS, OMITTED, dumped, shortened

DEFAULT_REQUESTS: Final = "10"
"""Default number of requests. This number of requests fits into an answer."""

_DIGESTS: Final = "prefix_ladder"
"""Digests of a request's prompt. Digests are omitted, because a language model cannot use them."""

_USES: Final[Mapping[str, str]] = {
    "stats": (
        "Count requests and compute latency percentiles, in groups. Use it to find which tenant,"
        " model or replica is slow, and how slow. One object per group, the largest group first."
        " p99_low and p99_high are the 95 % interval of p99; null means too few requests."
    ),
    "explain": (
        "Explain why a latency grew: the causes with their share of the growth, the evidence and"
        " the action that helps. Use it when slo reports an incident, or when stats shows a slower"
        " latency than before. verdict is incident, no_incident or insufficient_data. Do not name"
        " a cause if the verdict is not incident. Give incident (SLO, or SLO@TIME) to explain an"
        " incident, request to explain one request, and a range otherwise. It takes some seconds;"
        " fast=true is quicker and has no intervals. If method is accounting, each share is an"
        ' estimate: do not quote it as a percentage; write "probably most" or "a part".'
    ),
    "requests": (
        "List single requests with their phases, which sum to the latency. Use it for examples,"
        f" such as the slowest: sort=-ttft_s. The default limit is {DEFAULT_REQUESTS}. Do not"
        " compute percentiles from this list; use stats. Prompts and answers are not recorded."
    ),
    "cost": (
        "Compute the cost of serving in US dollars: requests, recomputation, idle time. The"
        " parameter by groups the cost of the requests, for example by=tenant. The bill always"
        " covers all engines."
    ),
    "caches": (
        "Show what semantic, embedding and response caches in front of the model answered: hit"
        " rates with 95 % intervals, lookup times, and an estimate of the dollars and engine"
        " seconds that hits saved. A hit is not a request, so stats, explain, cost and slo do not"
        " include it."
    ),
    "slo": (
        "Show each objective: the remaining error budget, the burn rates, the alerts that fire and"
        " the newest incidents. Use this tool first to find out whether something is wrong now."
    ),
    "compare": (
        "Compare a latency before and after a change, such as a deploy, at the same mix of requests"
        " and the same load. Give before and after as FROM/TO and no range, or before-where and"
        " after-where for a canary (replica=…, config=… or version=…). verdict is worse, better,"
        " no_worse or undecided, and is about the change only; reasons state what could not be"
        " compared. It takes some seconds; fast=true is quicker."
    ),
    "what-if": (
        "Predict what a change would do to the recorded traffic, by replaying it on a model of"
        " each engine. Give exactly the change in question: set (such as max_num_seqs=64),"
        " replicas, router, rate (such as 2x), prompt, output, or sweep or find. If refused is not"
        " null, there is no prediction, and refused is the reason. It takes up to a minute."
    ),
    "budget": (
        "Show in which layers the slow requests exceed a latency budget: the application before"
        " the model, network, front end, queue, prefill, decode, delivery, the application after"
        " it. preset is voice, chat or code. verdict is within, over or insufficient_data. Values"
        " are means over the slowest requests; spent_s null means unknown. Do not promise the gain"
        " of a change; predict it with what_if."
    ),
    "outside": (
        "Show how each endpoint, self-hosted or managed, responds to each region, as measured by"
        " probes: share of complete answers, reasons of failures, latencies, phases that sum to"
        " the whole wait, network time, cost of probing. Use it to find out whether the network or"
        " an endpoint is at fault. Probes are test requests, not users' requests."
    ),
}
"""When to use each tool, and how to read its answer. The description of any other tool is the help
of its command."""

_FORM: Final = (
    f" The answer has at most {MAX_CHARACTERS:,} characters, and numbers have {DIGITS} significant"
    f" digits: long lists are shortened, and their last element {{{OMITTED!r}: N}} is the number of"
    " elements left out. Names ending in _s are seconds, _ratio are shares, _usd are dollars. null"
    " is unknown, not 0. Give either last or from."
)


def listed() -> list[dict[str, Any]]:
    """The name, the description and the input schema of each tool."""
    return [
        {
            "name": name.replace("-", "_"),
            "title": each.summary,
            "description": _USES.get(name, each.meaning) + _FORM,
            "input_schema": {
                "type": "object",
                "properties": {key: _property(one) for key, one in each.parameters.items()},
                "additionalProperties": False,
            },
        }
        for name, each in questions().items()
    ]


def used(tool: str, given: Mapping[str, Any], reader: Reader = EVERYTHING) -> str:
    """Return the short answer of a tool as JSON, or raise QuestionRefused."""
    named = {name.replace("-", "_"): each for name, each in questions().items()}
    if tool not in named:
        raise QuestionRefused(f"there is no tool {tool[:80]!r}; allowed: {', '.join(named)}")
    question = named[tool]
    pairs = list(_pairs(question, given))
    if question.name == "requests" and "limit" not in given:
        pairs.append(("limit", DEFAULT_REQUESTS))
    found = answered(question.name, pairs, reader)
    about: dict[str, Any] = {"answer": json.loads(found.document()) if found.text else []}
    if question.name == "requests":
        about["answer"] = [
            {key: value for key, value in row.items() if value is not None and key != _DIGESTS}
            for row in about["answer"]
        ]
    if found.note:
        about["note"] = found.note
    if explorer := os.environ.get(EXPLORER_KEY):
        about["explorer"] = page_link(explorer, question.name, pairs)
    return dumped(shortened(about))


def _property(each: Parameter) -> dict[str, Any]:
    schema = dict(each.schema)
    if each.repeated:
        schema = {"type": "array", "items": schema}
    return {**schema, "description": each.meaning}


def _pairs(question: QuestionCommand, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the arguments as texts. Raise QuestionRefused if an argument has a wrong type."""
    for name, value in given.items():
        parameter = question.parameters.get(name)
        allowed = parameter.allowed if parameter else "text"
        for each in value if isinstance(value, list) else [value]:
            if each is None:
                continue
            if isinstance(each, bool):
                each = str(each).lower()
            if not isinstance(each, str | int | float):
                raise QuestionRefused(
                    f"{name} {dumped(each)[:80]}: wrong type; allowed: {allowed}",
                    parameter=name,
                    value=dumped(each)[:80],
                    allowed=allowed,
                )
            yield name, str(each)
