"""Several collectors on one database, in separate processes."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT

from rig.program import FREE_PORTS, Tailspan

QUICK = Path(__file__).with_name("_quick_collector.py")
QUIET_S = 15
"""Outside this benchmark, an incident is over after 300 s without an alert."""

OBJECTIVE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: MODEL}
spec:
  service: MODEL
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.99}]
  indicator: {spec: {ratioMetric: {counter: true,
    total: {metricSource: {type: tailspan, spec: {where: model == "MODEL"}}},
    good: {metricSource: {type: tailspan, spec: {good: ttft_s <= 0.5}}}}}}
  alertPolicies:
    - kind: AlertPolicy
      metadata: {name: quick}
      spec:
        alertWhenNoData: false
        conditions:
          - kind: AlertCondition
            metadata: {name: quick}
            spec:
              severity: page
              condition: {kind: burnrate, op: gt, threshold: 5, lookbackWindow: 2m, alertAfter: 1m}
"""


class QuickTailspan(Tailspan):
    """A running `tailspan up` whose incidents end after `QUIET_S`."""

    def __init__(self, folder: Path, *words: str) -> None:
        quick = (sys.executable, str(QUICK), str(QUIET_S))
        super(Tailspan, self).__init__(folder, *quick, *words, *FREE_PORTS)


@dataclass
class Collectors:
    """The running collectors. `running` creates an instance."""

    folder: Path
    url: str
    words: Sequence[str]
    programs: list[QuickTailspan] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    """Port of OTLP over HTTP of each collector."""
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self, number: int) -> None:
        """Start more collectors at the same time, and wait until they are up."""
        began = [self._begin(len(self.programs) + each) for each in range(number)]
        for program in began:
            self.ports.append(program.is_up().port("http"))
            self.programs.append(program)

    def restart(self, at: int) -> None:
        """Replace a collector that was killed."""
        program = self._begin(at)
        self.ports[at] = program.is_up().port("http")
        self.programs[at] = program

    def holder(self, at: int) -> str:
        """Text that identifies this collector as the holder of a lease."""
        return f":{self.programs[at].process.pid}:"

    def _begin(self, at: int) -> QuickTailspan:
        folder = self.folder / f"collector-{at}"
        folder.mkdir(exist_ok=True)
        words = ("up", "--no-explorer", "--gpus=off", f"--database={self.url}", *self.words)
        return self._running.enter_context(QuickTailspan(folder, *words))


@contextmanager
def running(
    folder: Path,
    url: str,
    models: Sequence[str],
    webhook: str,
    number: int,
    state_url: str | None = None,
) -> Iterator[Collectors]:
    """Run collectors with an objective for each model, and send notifications to a webhook."""
    objectives = folder / "objectives"
    objectives.mkdir()
    for model in models:
        (objectives / f"{model}.yaml").write_text(OBJECTIVE.replace("MODEL", model))
    notify = folder / "notify.yaml"
    notify.write_text(f"channels:\n  - {{name: hook, type: webhook, url: '{webhook}'}}\n")
    apart = [f"--state-url={state_url}"] if state_url else []
    words = (f"--objectives={objectives}", f"--notify={notify}", *apart)
    collectors = Collectors(folder, url, words)
    with collectors._running:
        collectors.start(number)
        yield collectors
        for program in collectors.programs:
            program.process.send_signal(SIGCONT)
