"""Run Tailspan with a simulated fleet, and a Prometheus with Tailspan's rules."""

import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rig.install import ProgramUnavailableError
from rig.ports import free_port
from rig.program import Program, tailspan_command
from rig.synthetic_probes import send_synthetic_probes

ROOT = Path(__file__).parents[1]
PATIENCE_S = 60.0


@dataclass
class MonitoredTailspan:
    """The running programs."""

    folder: Path
    url: str
    metrics_port: int
    otlp_port: int
    scrape_s: float
    running: ExitStack
    simulator: Program | None = None

    def ask(self, path: str, **parameters: object) -> Any:
        """The data in a response of the Prometheus API."""
        query = urllib.parse.urlencode({key: str(value) for key, value in parameters.items()})
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            document = json.loads(answer.read())
        assert document["status"] == "success", document
        return document["data"]

    def end_simulation(self) -> None:
        """Stop the simulated fleet."""
        assert self.simulator is not None
        self.simulator.stop()

    def simulate(self, *words: str) -> None:
        """Start the simulated fleet. Its counters start at 0."""
        endpoint = ("--endpoint", f"http://127.0.0.1:{self.otlp_port}")
        self.simulator = self.start(*tailspan_command("simulate", *endpoint, *words))

    @contextmanager
    def prometheus(self, features: str) -> Iterator["MonitoredTailspan"]:
        """Start another Prometheus with the same targets and rules."""
        with _prometheus(self.folder, features) as url:
            yield replace(self, url=url)

    def start(self, *command: str) -> Program:
        """Start another program."""
        return self.running.enter_context(Program(self.folder, *command))


def wait_for(what: str, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Call `found` until it returns a true value, and return this value."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if result := found():
                return result
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {patience_s:g} s")
        time.sleep(0.2)


def answers(url: str) -> bool:
    """Whether a server responds at this URL."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)


@contextmanager
def _prometheus(folder: Path, features: str) -> Iterator[str]:
    """Start a Prometheus with the configuration in this folder, and return its URL.

    Raises:
        ProgramUnavailableError: Prometheus is not installed.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise ProgramUnavailableError(
            "there is no prometheus; install it with: apt-get install prometheus"
        )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Program(
        folder,
        program,
        "--config.file=prometheus.yaml",
        f"--storage.tsdb.path=data-{port}",
        f"--enable-feature={features}",
        f"--web.listen-address=127.0.0.1:{port}",
    ):
        wait_for(url, partial(answers, f"{url}/-/ready"))
        yield url


@contextmanager
def monitored_tailspan(
    folder: Path, scrape_s: float = 1.0, features: str = "exemplar-storage"
) -> Iterator[MonitoredTailspan]:
    """Start Tailspan, Prometheus and probers, without a simulated fleet.

    Args:
        scrape_s: interval in seconds at which Prometheus scrapes.

    Raises:
        ProgramUnavailableError: Prometheus is not installed.
    """
    http, metrics = free_port(), free_port()
    rules = yaml.safe_load((ROOT / "alerts" / "rules" / "tailspan.yaml").read_text())
    for group in rules["groups"]:
        group["interval"] = f"{round(scrape_s * 1000)}ms"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    interval = f"{round(scrape_s * 1000)}ms"
    configuration = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "tailspan",
                "scrape_timeout": interval,
                "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}],
            }
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    with ExitStack() as running:
        url = running.enter_context(_prometheus(folder, features))
        here = MonitoredTailspan(folder, url, metrics, http, scrape_s, running)
        ports = ("--grpc-port=0", f"--http-port={http}", f"--metrics-port={metrics}")
        here.start(*tailspan_command("up", "--no-explorer", *ports))
        ready = f"http://127.0.0.1:{metrics}/readyz"
        wait_for(ready, partial(answers, ready))
        running.enter_context(send_synthetic_probes(http))
        yield here
