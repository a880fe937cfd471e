"""Measured and modelled bandwidth, MBU and the cost of a request over increasing load.

    tailspan up --no-explorer
    vllm serve FOLDER --load-format dummy --served-model-name llama
    python benchmarks/gpu_roofline.py --port 8000 --model llama [--concurrency 1,4,16,64,256]

The server has the plugin and sends to that Tailspan. FOLDER contains the config.json and the
tokenizer of a Llama-3-8B; the weights are random.

At each level, this many clients request answers of one length. The engine's and GPUs' data of that
time are read from the database of `tailspan up`, without the first seconds of each level. On a
machine without a GPU, its columns are "–".
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

from rig.load import Call, send  # found by the line above
from roofline.arrow import engines_of, gpus_of
from roofline.chunks import read_chunks
from roofline.errors import UnknownShapeError
from roofline.peakfile import peaks_in_force
from roofline.peaks import device_named
from roofline.shape_from_config import read_shape
from roofline.windows import Window as Account
from roofline.windows import windows_of
from roofline.wording import findings
from store.database import open_database
from store.queries import Window, gpu_table, request_table, sample_table
from store.replicas.engine_starts import in_force

NS = 10**9
WARM_UP_S = 5.0
TOLD_S = 10.0
"""Time until the data has arrived and is stored."""
NOTHING = "–"


class Level(NamedTuple):
    """The result of one load. `account` is None if the engine reported nothing."""

    clients: int
    seconds: float
    requests: int
    output_tokens: int
    cost_usd: float | None
    """Of all requests; None if one has no price."""
    account: Account | None


class Refused(Exception):  # noqa: N818 -- a state, not a failure
    """The server does not answer such requests."""


def load(port: int, model: str, clients: int, seconds: float, prompt: int, output: int) -> Window:
    """Keep this many requests in flight; return the time range in which the load was steady.

    Raises:
        Refused: the server does not answer.
    """
    begun_ns = time.time_ns()
    end_s = time.monotonic() + seconds

    def ask(client: int) -> None:
        number = 0
        while time.monotonic() < end_s:
            # Prompts have no common prefix, so that no cache answers.
            words = f"{client} {number} {clients} " + "word " * prompt
            answer = send(port, Call(chat=False, prompt=words, max_tokens=output, model=model))
            if answer.status != 200:
                raise Refused(f"the server answers {answer.status} for the model {model!r}")
            number += 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    return Window(begun_ns + round(WARM_UP_S * NS), begun_ns + round(seconds * NS))


def level(engine: Engine, replica: str, clients: int, window: Window) -> Level:
    """Return the data of a time range.

    Args:
        engine: the database.
        replica: the replica.
        clients: concurrent clients.
        window: in which the load was steady.
    """
    mine = {"replica": replica}
    told = request_table(
        engine, window, columns=["output_tokens", "cost_usd"], equals=mine
    ).to_pylist()
    costs = [row["cost_usd"] for row in told]
    start = next((each for each in in_force(engine) if each.replica == replica), None)
    shape = None
    if start is not None and start.shape is not None:
        try:
            shape = read_shape(start.shape)
        except UnknownShapeError as error:
            print(f"the model's shape is not known: {error}", file=sys.stderr)
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
        len(told),
        sum(row["output_tokens"] or 0 for row in told),
        None if not costs or None in costs else sum(costs),
        accounts[0] if accounts else None,
    )


HEADER = (
    *("clients", "req/s", "tokens/s", "measured TB/s", "modelled TB/s", "MBU", "MFU", "bound by"),
    *("$/1,000 requests", "$/1M tokens out"),
)


def table(levels: Sequence[Level]) -> list[str]:
    """The printed table."""
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
    """Increase the load, print; 0, also without a server."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--port", type=int, help="the server's, on this machine")
    parser.add_argument("--model", default="llama", help="its name of the model")
    parser.add_argument("--replica", help="what it calls itself; HOST:PORT unless named")
    parser.add_argument("--database", default="sqlite:///var/tailspan.db")
    parser.add_argument("--concurrency", default="1,4,16,64,256", help="levels, by commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each level")
    parser.add_argument("--prompt", type=int, default=512, help="words of a prompt")
    parser.add_argument("--output", type=int, default=256, help="tokens of an answer")
    given = parser.parse_args(words)
    if given.seconds <= WARM_UP_S:
        parser.error(f"--seconds must be more than the {WARM_UP_S:g} that are left out")
    if given.port is None:
        print("nothing measured: name a server that may be loaded: --port")
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
    time.sleep(TOLD_S)
    levels = [level(engine, replica, clients, window) for clients, window in steady]
    start = next((each for each in in_force(engine) if each.replica == replica), None)
    engine.dispose()
    if start is None:
        print(f"no data from {replica}: --replica NAME, as tailspan requests shows it")
        return 1
    print(f"{start.device}, {given.prompt} words in, {given.output} tokens out")
    print("\n".join(table(levels)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
