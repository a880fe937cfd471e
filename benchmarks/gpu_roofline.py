"""Print measured and modelled bandwidth, MBU and the cost of a request under increasing load.

    tailspan up --no-explorer
    vllm serve FOLDER --load-format dummy --served-model-name llama
    python benchmarks/gpu_roofline.py --port 8000 --model llama [--concurrency 1,4,16,64,256]

The server has the plugin and sends its data to this Tailspan. FOLDER contains the config.json and
the tokenizer of Llama-3-8B. The benchmark reads the data from Tailspan's database, without the
first seconds of each level. Without a GPU, the GPU columns contain "–".
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import Engine

from rig.load import Call, send  # needs the path inserted above
from roofline.arrow import engines_of, gpus_of
from roofline.chunks import read_chunks
from roofline.errors import UnknownShapeError
from roofline.peakfile import peaks_in_force
from roofline.peaks import device_named
from roofline.shape_from_config import read_shape
from roofline.windows import RooflineWindow, windows_of
from roofline.wording import findings
from store.database import open_database
from store.queries import gpu_table, request_table, sample_table
from store.replicas.engine_starts import in_force
from telemetry.window import Window

NS = 10**9
WARM_UP_S = 5.0
STORED_S = 10.0
"""Seconds to wait until the data has arrived and is stored."""
NOTHING = "–"


class Level(NamedTuple):
    """One load level. `account` describes the engine's work, or is None without data."""

    clients: int
    seconds: float
    requests: int
    output_tokens: int
    cost_usd: float | None
    """The cost of all requests, or None if a request has no price."""
    account: RooflineWindow | None


class RequestRefused(Exception):  # noqa: N818 -- a state, not a failure
    """The server refused a request."""


def load(port: int, model: str, clients: int, seconds: float, prompt: int, output: int) -> Window:
    """Keep `clients` requests in flight. Return the time range in which the load was steady.

    Raises:
        RequestRefused: the server refuses a request.
    """
    begun_ns = time.time_ns()
    end_s = time.monotonic() + seconds

    def ask(client: int) -> None:
        number = 0
        while time.monotonic() < end_s:
            # Prompts have no common prefix, so no prefix is cached.
            words = f"{client} {number} {clients} " + "word " * prompt
            answer = send(port, Call(chat=False, prompt=words, max_tokens=output, model=model))
            if answer.status != 200:
                raise RequestRefused(
                    f"the server returns status {answer.status} for the model {model!r}"
                )
            number += 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    return Window(begun_ns + round(WARM_UP_S * NS), begun_ns + round(seconds * NS))


def level(engine: Engine, replica: str, clients: int, window: Window) -> Level:
    """Data of one load level."""
    mine = {"replica": replica}
    answered = request_table(
        engine, window, columns=["output_tokens", "cost_usd"], equals=mine
    ).to_pylist()
    costs = [row["cost_usd"] for row in answered]
    start = next((each for each in in_force(engine) if each.replica == replica), None)
    shape = None
    if start is not None and start.shape is not None:
        try:
            shape = read_shape(start.shape)
        except UnknownShapeError as error:
            print(f"the model's shape is unknown: {error}", file=sys.stderr)
    device = device_named(start.device if start is not None else None, peaks_in_force(os.environ))
    chunks = read_chunks(start.arguments) if start is not None else None
    gpus = gpus_of(gpu_table(engine, window, equals=mine), replica)
    accounts = [
        account
        for columns in engines_of(sample_table(engine, window, equals=mine)).values()
        for account in windows_of(columns, shape, device, gpus, None, chunks)
    ]
    return Level(
        clients,
        (window.to_unix_ns - window.from_unix_ns) / NS,
        len(answered),
        sum(row["output_tokens"] or 0 for row in answered),
        None if not costs or None in costs else sum(costs),
        accounts[0] if accounts else None,
    )


HEADER = (
    *("clients", "req/s", "tokens/s", "measured TB/s", "modelled TB/s", "MBU", "MFU", "bound by"),
    *("$/1,000 requests", "$/1M tokens out"),
)


def table(levels: Sequence[Level]) -> list[str]:
    """The printed table as lines."""
    rows = [HEADER, *(_row(each) for each in levels)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADER))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    for each in levels:
        if each.account is not None:
            lines += [f"{each.clients} clients: {problem}" for problem in findings(each.account)]
    return lines


def _row(each: Level) -> tuple[str, ...]:
    account = each.account
    least = most = measured = mbu = mfu = None
    bound = NOTHING
    if account is not None:
        least, most = account.least_bytes_per_s, account.modelled_bytes_per_s
        measured, mbu, mfu = account.measured_bytes_per_s, account.mbu, account.mfu
        bound = NOTHING if account.verdict is None else str(account.verdict)
    modelled = NOTHING
    if least is not None and most is not None:
        modelled = f"{_figure(least, 1e-12)} to {_figure(most, 1e-12)}"
    of_requests = each.cost_usd is not None and each.requests
    of_tokens = each.cost_usd is not None and each.output_tokens
    return (
        str(each.clients),
        _figure(each.requests / each.seconds),
        _figure(each.output_tokens / each.seconds),
        _figure(measured, 1e-12),
        modelled,
        NOTHING if mbu is None else f"{mbu:.0%}",
        NOTHING if mfu is None else f"{mfu:.1%}",
        bound,
        _figure((each.cost_usd or 0.0) / each.requests, 1e3) if of_requests else NOTHING,
        _figure((each.cost_usd or 0.0) / each.output_tokens, 1e6) if of_tokens else NOTHING,
    )


def _figure(value: float | None, scale: float = 1.0) -> str:
    return NOTHING if value is None else f"{value * scale:.3g}"


def main(words: Sequence[str] | None = None) -> int:
    """Increase the load and print the results. Return 0, even without a server."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--port", type=int, help="port of the server on this machine")
    parser.add_argument("--model", default="llama", help="name of the model")
    parser.add_argument("--replica", help="the server's service.instance.id; default HOST:PORT")
    parser.add_argument("--database", default="sqlite:///var/tailspan.db")
    parser.add_argument(
        "--concurrency", default="1,4,16,64,256", help="numbers of clients, separated by commas"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of each level")
    parser.add_argument("--prompt", type=int, default=512, help="words per prompt")
    parser.add_argument("--output", type=int, default=256, help="tokens per answer")
    given = parser.parse_args(words)
    if given.seconds <= WARM_UP_S:
        parser.error(f"--seconds must be more than {WARM_UP_S:g}, which are left out")
    if given.port is None:
        print("nothing measured: give the port of a server to load with --port")
        return 0
    try:
        socket.create_connection(("127.0.0.1", given.port), 2).close()
    except OSError as error:
        print(f"nothing measured: no server on port {given.port}: {error}")
        return 0
    replica = given.replica or f"{socket.gethostname()}:{given.port}"
    engine = open_database(given.database, create=False)
    steady = []
    for clients in (int(each) for each in given.concurrency.split(",")):
        print(f"{clients} clients for {given.seconds:g} s", file=sys.stderr)
        window = load(given.port, given.model, clients, given.seconds, given.prompt, given.output)
        steady.append((clients, window))
    time.sleep(STORED_S)
    levels = [level(engine, replica, clients, window) for clients, window in steady]
    start = next((each for each in in_force(engine) if each.replica == replica), None)
    engine.dispose()
    if start is None:
        print(
            f"no data from {replica}: give --replica NAME with the name that tailspan requests "
            "shows"
        )
        return 1
    print(f"{start.device}, {given.prompt} words in, {given.output} tokens out")
    print("\n".join(table(levels)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
