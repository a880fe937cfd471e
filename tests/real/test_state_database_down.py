import json
import time
from pathlib import Path

import pytest
import requests

from benchmarks._collector_traffic import CollectorTraffic
from benchmarks._collectors import running
from rig.http_servers import running_http_server
from rig.install import ProgramUnavailableError
from rig.postgresql import PostgreSQL
from rig.prometheus_stack import wait_for

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_rows_are_received_while_evaluation_pauses_and_the_burn_is_notified_once(
    tmp_path: Path,
) -> None:
    try:
        server = PostgreSQL()
    except ProgramUnavailableError as error:
        pytest.skip(str(error))
    database = f"sqlite:///{tmp_path}/tailspan.db"
    with (
        server,
        running_http_server() as webhook,
        running(tmp_path, database, ["chat"], f"{webhook.url}/hook", 1, server.url()) as collectors,
        CollectorTraffic(collectors, ["chat"]) as traffic,
    ):
        (program,) = collectors.programs
        program.wait_for("This collector now does the evaluation")
        wait_for("requests", lambda: bool(traffic.acknowledged))
        server.stop("immediate")
        traffic.slow.add("chat")
        program.wait_for(
            r"lost the lease on evaluation, notification and retention, because the state database"
            r" cannot be \w+: .*\. These tasks pause until it is available"
        )
        before = len(traffic.acknowledged)
        wait_for("more requests", lambda: len(traffic.acknowledged) > before + 50)
        metrics = f"http://127.0.0.1:{program.port('metrics')}"
        assert requests.get(f"{metrics}/readyz", timeout=10).status_code == 200
        held = 'tailspan_lease_held{lease="evaluation"} '
        assert f"{held}0\n" in requests.get(f"{metrics}/metrics", timeout=10).text
        assert not webhook.received
        server.start()
        wait_for("a message", lambda: bool(webhook.received))
        assert f"{held}1\n" in requests.get(f"{metrics}/metrics", timeout=10).text
        time.sleep(20)  # a second message would be sent at the next evaluation
        assert [json.loads(each.body)["transition"] for each in webhook.received] == ["firing"]
