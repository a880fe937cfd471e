"""Serve ClickHouse's engine (chdb) over HTTP, so that several processes can use one database.

The server supports only the queries and inserts that Tailspan sends. It executes one statement at a
time.

python -m rig.clickhouse_server FOLDER prints its port, and runs until standard input is closed.
"""

import gzip
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from rig.http_servers import HttpReply, ReceivedRequest, running_http_server
from rig.install import ProgramUnavailableError

DATABASE: Final = "tailspan"
_OWN: Final = ("database", "query", "query_id", "session_id", "wait_end_of_query")
"""The parameters that the server itself reads. All other parameters are settings or values of the
query."""
_NOT_SETTINGS: Final = re.compile(r"client_protocol_version|.*http.*|.*compress.*")
_FORMAT: Final = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_PLAIN: Final = "TabSeparated"


@contextmanager
def clickhouse_server(folder: Path) -> Iterator[str]:
    """Run a server in a separate process. Yields the URL of its empty database.

    Raises:
        ProgramUnavailableError: chdb is not installed.
    """
    if find_spec("chdb") is None:
        raise ProgramUnavailableError("there is no chdb; install it with: pip install '.[chdb]'")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"clickhousedb://localhost:{int(process.stdout.readline())}/{DATABASE}"
        finally:
            process.stdin.close()
            process.wait(30)


def replies(engine: Any) -> Callable[[ReceivedRequest], HttpReply]:
    """A function that answers the requests of ClickHouse's HTTP interface."""
    lock = threading.Lock()
    known: dict[str, str] = {}

    def prepare(parameters: dict[str, str]) -> None:
        if parameters.get("database", known.get("")) != known.get(""):
            engine.query(f"USE `{parameters['database']}`")
            known[""] = parameters["database"]
        for name, value in parameters.items():
            wanted = name not in _OWN and not name.startswith("param_")
            if wanted and not _NOT_SETTINGS.fullmatch(name) and known.get(name) != value:
                engine.query(f"SET {name} = '{value}'")
                known[name] = value

    def run(request: ReceivedRequest, parameters: dict[str, str]) -> HttpReply:
        zipped = request.headers.get("content-encoding") == "gzip"
        body = gzip.decompress(request.body) if zipped else request.body
        values = {name[6:]: each for name, each in parameters.items() if name.startswith("param_")}
        with lock:
            prepare(parameters)
            if "query" in parameters and body:
                return _insert(engine, parameters["query"], body)
            sql = parameters.get("query") or body.decode()
            wanted = _FORMAT.search(sql)
            if wanted:
                answer = engine.query(sql, _PLAIN, params=values).bytes() or b""
                return HttpReply(200, answer, {"X-ClickHouse-Format": wanted[1]})
            # With column names in the output, an empty result can be distinguished from no result.
            answer = engine.query(sql, f"{_PLAIN}WithNames", params=values).bytes() or b""
            headers = {"X-ClickHouse-Format": _PLAIN} if answer else {}
            return HttpReply(200, answer.partition(b"\n")[2], headers)

    def reply(request: ReceivedRequest) -> HttpReply:
        parts = urlsplit(request.path)
        if parts.path == "/ping":
            return HttpReply(200, b"Ok.\n")
        try:
            found = run(request, dict(parse_qsl(parts.query, keep_blank_values=True)))
        except Exception as error:
            code = re.search(r"Code: (\d+)", str(error))
            headers = {"X-ClickHouse-Exception-Code": code[1] if code else "1"}
            return HttpReply(500, str(error).encode(), headers)
        return found._replace(headers={**found.headers, "X-ClickHouse-Timezone": "UTC"})

    return reply


def _insert(engine: Any, statement: str, rows: bytes) -> HttpReply:
    into, _, kind = statement.rpartition("FORMAT")
    with tempfile.NamedTemporaryFile() as file:
        file.write(rows)
        file.flush()
        engine.query(f"{into} FROM INFILE '{file.name}' FORMAT {kind}")
    return HttpReply()


def main() -> None:
    """Serve a folder until standard input is closed."""
    chdb: Any = import_module("chdb")
    engine = chdb.connect(sys.argv[1])
    engine.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    with running_http_server(replies(engine), "HTTP/1.1") as server:
        print(server.port, flush=True)
        sys.stdin.read()
    os._exit(0)  # chdb's threads can delay the end of the process


if __name__ == "__main__":
    main()
