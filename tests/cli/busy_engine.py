from telemetry.engines import EngineSample
from telemetry.starts import EngineStart
from tests.cli.output import START_S

NS = 10**9


def samples() -> list[EngineSample]:
    return [
        EngineSample(
            replica="r",
            engine=0,
            process=1,
            at_unix_ns=(START_S + second) * NS,
            started_unix_ns=START_S * NS,
            busy_s_total=second / 2,
        )
        for second in range(0, 601, 10)
    ]


def start(device: str | None, gpus: int) -> EngineStart:
    return EngineStart(
        replica="r",
        engine=0,
        process=1,
        at_unix_ns=START_S * NS,
        config="c",
        arguments="{}",
        device=device,
        gpus=gpus,
    )
