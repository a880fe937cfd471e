import random
import statistics
import subprocess
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from rig.load import Call, Timed, mixed, send_all
from telemetry.prefix_ladders import POSITIONS, read_ladders
from tests.ui.reader import Reader
from ui.frame.pages import PAGES

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PHASES = ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s")
HISTOGRAMS = {"queue_s": "queue", "prefill_s": "prefill", "decode_s": "decode"}


def _kind(seen: Timed) -> str:
    if seen.aborted:
        return "aborted"
    return "answered" if seen.status == 200 else "refused"


@pytest.fixture(scope="module")
def story(vllm: Any, tailspan: Any) -> tuple[list[Timed], dict[str, Any], dict[str, float]]:
    """Send 60 requests: 53 complete, 5 are aborted during the response, 2 are refused.

    Returns:
        The requests, their rows, and vLLM's own sums.
    """
    calls = mixed(53, seed=3)
    calls += [
        Call(chat=index % 2 == 0, stream=True, max_tokens=7000, abort_after_chunks=5)
        for index in range(3)
    ]
    calls += [Call(chat=False, stream=False, max_tokens=7000, abort_after_s=0.4)] * 2
    calls += [Call(max_tokens=-1), Call(chat=False, body={"temperature": -3})]
    random.Random(5).shuffle(calls)
    before = vllm.own_metrics()
    seen = send_all(vllm.port, calls, concurrency=4)
    rows = tailspan.rows({timed.trace_id for timed in seen})
    after = vllm.own_metrics()
    own = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return seen, rows, own


def test_every_request_is_a_row_with_its_outcome(story: Any) -> None:
    seen, rows, _ = story
    assert len(seen) == len(rows) == 60
    counts = {kind: sum(_kind(timed) == kind for timed in seen) for kind in map(_kind, seen)}
    assert counts == {"answered": 53, "aborted": 5, "refused": 2}
    expected = {"answered": {"stop", "length"}, "aborted": {"abort"}, "refused": {"rejected"}}
    for timed in seen:
        assert rows[timed.trace_id]["outcome"] in expected[_kind(timed)]


def test_the_phases_sum_to_the_end_to_end_time(story: Any) -> None:
    _, rows, _ = story
    for row in rows.values():
        known = [row[phase] for phase in PHASES if row[phase] is not None]
        assert sum(known) == pytest.approx(row["e2e_s"], abs=1e-3)
        assert min(known) >= 0


def test_ttft_is_the_clients_time_minus_the_network(story: Any) -> None:
    """The smallest difference from the client's time is at most 20 ms.

    On a busy machine, the client may read a byte long after the server wrote it. The server may
    also record the last byte later than the client.
    """
    seen, rows, _ = story
    differences, ends = [], []
    for timed in seen:
        if _kind(timed) == "answered":
            row = rows[timed.trace_id]
            assert row["ttft_s"] <= timed.ttft_s
            differences.append(timed.ttft_s - row["ttft_s"])
            ends.append(row["e2e_s"] - timed.e2e_s)
    assert min(differences) < 0.020
    assert statistics.median(ends) < 0.010


def test_sums_are_those_of_vllms_own_histograms(story: Any) -> None:
    """vLLM counts only finished requests; count and sum agree within 1 %."""
    _, rows, own = story
    finished = [row for row in rows.values() if row["outcome"] in ("stop", "length")]
    for column, name in HISTOGRAMS.items():
        family = f"vllm:request_{name}_time_seconds"
        assert own[f"{family}_count"] == len(finished)
        ours = sum(row[column] for row in finished)
        assert ours == pytest.approx(own[f"{family}_sum"], rel=0.01)
    assert own["vllm:generation_tokens_total"] >= sum(row["output_tokens"] for row in finished)


def test_labels_come_from_the_request_and_the_server(story: Any) -> None:
    seen, rows, _ = story
    timed = next(timed for timed in seen if "x-tenant-id" in timed.call.headers)
    row = rows[timed.trace_id]
    assert row["tenant"] == timed.call.headers["x-tenant-id"]
    assert row["route"] == ("/v1/chat/completions" if timed.call.chat else "/v1/completions")
    assert (row["model"], row["region"], row["source"]) == ("tiny", "here", "instrumentation")
    assert row["request_id"].startswith("chatcmpl-" if timed.call.chat else "cmpl-")
    assert row["config"] is not None


def test_no_prompt_is_kept(vllm: Any, tailspan: Any) -> None:
    secret = "tulip-merchants-of-haarlem"
    headers = {"authorization": f"Bearer {secret}"}
    (timed,) = send_all(vllm.port, [Call(prompt=secret, headers=headers)], 1)
    assert tailspan.rows({timed.trace_id})
    for file in (tailspan.folder / "var").iterdir():
        assert secret.encode() not in file.read_bytes()


def test_ladders_show_common_prefixes(vllm: Any, tailspan: Any) -> None:
    """Two prompts' ladders have equal keys for the tokens that vLLM found in its cache for the
    second prompt."""
    shared = "the merchants of haarlem met at the inn " * 60
    prompts = (f"{shared} and one left", f"{shared} but another stayed", f"no, {shared}")
    calls = [Call(chat=False, prompt=prompt, max_tokens=4) for prompt in prompts]
    seen = send_all(vllm.port, calls, 1)
    rows = tailspan.stored(seen)
    one, other, third = (rows[timed.trace_id] for timed in seen)
    found = read_ladders([each["prefix_ladder"] for each in (one, other, third)])
    rungs = np.split(found.rungs, found.offsets[1:-1])
    equal = [a == b for a, b in zip(rungs[0].tolist(), rungs[1].tolist(), strict=False)]
    shared_rungs = (*equal, False).index(False)
    before, after = (0, *POSITIONS)[shared_rungs - 1 : shared_rungs + 1]
    assert before <= other["cached_tokens"] / found.block_tokens[1] < after
    assert before > 0
    for row, block_tokens in zip((one, other, third), found.block_tokens, strict=True):
        # Every full block of a prompt was in the cache, or was written to it.
        lacking = row["prompt_tokens"] - row["cached_tokens"] - row["cache_write_tokens"]
        assert 0 <= lacking < block_tokens
    assert other["cache_write_tokens"] < one["cache_write_tokens"]
    assert rungs[2][0] == rungs[0][0]
    assert rungs[2][1] != rungs[0][1]
    assert not any("merchants" in str(value) for value in one.values())


def test_promtool_accepts_the_exporters_metrics(story: Any, tailspan: Any, promtool: str) -> None:
    text = tailspan.metrics()
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert 'outcome="rejected"' in text
    for series in ("ttft_seconds_bucket", "engine_running_requests", "engine_steps_total"):
        assert f"tailspan_{series}" in text


def test_doctor_finds_no_problem(story: Any, vllm: Any, tailspan: Any) -> None:
    done = tailspan.run(
        *("doctor", "--vllm", f"http://127.0.0.1:{vllm.port}"),
        *("--http-port", str(tailspan.port("http")), "--grpc-port", str(tailspan.port("grpc"))),
        *("--metrics-port", str(tailspan.port("metrics"))),
        *("--explorer-port", str(tailspan.port("explorer"))),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_shows_those_requests(story: Any, tailspan: Any, tab: Any) -> None:
    _, rows, _ = story
    page = tab(viewport={"width": 1280, "height": 1000})
    # Requests of other tests may be slower, and the page lists the slowest requests.
    (replica,) = {row["replica"] for row in rows.values()}
    started_s = [int(row["started_at"]) for row in rows.values()]
    between = f"from={min(started_s)}&to={max(started_s) + 1}"
    of = f"page=requests&{between}&replica={quote(replica)}"
    page.goto(f"{tailspan.address('explorer')}/?{of}")
    page.locator("a[data-key]").first.wait_for()
    trace_ids = {row["trace_id"] for row in rows.values()}
    keys = [shown.get_attribute("data-key") for shown in page.locator("a[data-key]").all()]
    assert keys
    assert sum(key.split("-")[1] in trace_ids for key in keys) >= len(keys) / 2
    assert page.get_by_text("Traceback").count() == 0
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.get_by_text("Simulated data").count() == 0
    page.screenshot(path=tailspan.folder / "page.png", full_page=True)


def test_every_page_opens_on_a_real_server(story: Any, tailspan: Any, tab: Any) -> None:
    _, rows, _ = story
    person = Reader(tab(viewport={"width": 1280, "height": 1000}), tailspan.address("explorer"))
    person.open("?last=1h")
    for shown in PAGES:
        if shown.of_a_range:
            person.click(person.link(shown.name))
        else:
            person.open(f"?page={shown.key}&request={next(iter(rows))}")
        person.ready(shown.name)
        assert person.tab.get_by_text("Traceback").count() == 0, shown.key
        assert person.tab.locator("[data-testid=stException]").count() == 0, shown.key
        assert person.tab.get_by_text("Simulated data").count() == 0, shown.key
