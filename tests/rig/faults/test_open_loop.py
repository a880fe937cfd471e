import threading

from rig.faults.open_loop import send_on_time
from rig.http_servers import HttpReply, ReceivedRequest, running_http_server
from rig.load import Call


def test_a_slow_response_does_not_delay_later_requests() -> None:
    together = threading.Barrier(5)

    def wait(_: ReceivedRequest) -> HttpReply:
        together.wait(20)
        return HttpReply(body=b"data: done\n\n")

    with running_http_server(wait) as server:
        outcome = send_on_time(server.port, [(0.001 * n, Call()) for n in range(5)])
    assert (outcome.answered, outcome.failed) == (5, 0)
