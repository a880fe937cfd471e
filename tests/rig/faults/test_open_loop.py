"""Requests sent on time, answered or not."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rig.faults.open_loop import send_on_time
from rig.load import Call


def test_a_slow_answer_holds_no_later_request_back() -> None:
    """All are with the server before the first is answered."""
    together = threading.Barrier(5)

    class Waiting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            together.wait(20)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data: done\n\n")

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Waiting) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        outcome = send_on_time(server.server_port, [(0.001 * n, Call()) for n in range(5)])
        server.shutdown()
        serving.join()
    assert (outcome.answered, outcome.failed) == (5, 0)
