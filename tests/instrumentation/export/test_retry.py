import pytest
from tailspan_vllm.export.retry import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    LONGEST_REQUESTED_PAUSE_S,
    Backoff,
    deliver,
)
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict

ACCEPTED = ExportResponse(ExportVerdict.ACCEPTED)
UNREACHABLE = ExportResponse(ExportVerdict.UNREACHABLE)


def test_pauses_double_up_to_a_limit_and_restart() -> None:
    backoff = Backoff(jitter=lambda: 1.0)
    pauses = [backoff.wait(0.0, None) for _ in range(8)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert not backoff.due(LONGEST_PAUSE_S - 1)
    assert backoff.due(LONGEST_PAUSE_S)
    backoff.reset()
    assert backoff.due(0.0)
    assert backoff.wait(0.0, None) == FIRST_PAUSE_S


@pytest.mark.parametrize(
    ("requested_s", "pause_s"), [(7.0, 7.0), (1e9, LONGEST_REQUESTED_PAUSE_S), (0.0, FIRST_PAUSE_S)]
)
def test_a_requested_pause_is_kept_within_limits(requested_s: float, pause_s: float) -> None:
    """A collector may request a pause of 0 s, for example with a date in the past."""
    assert Backoff(jitter=lambda: 1.0).wait(0.0, requested_s) == pause_s


@pytest.mark.parametrize(
    ("answers", "attempts", "result"),
    [
        ([ACCEPTED], 1, ACCEPTED),
        ([UNREACHABLE, ExportResponse(ExportVerdict.BUSY), ACCEPTED], 3, ACCEPTED),
        (
            [UNREACHABLE, ExportResponse(ExportVerdict.REFUSED)],
            2,
            ExportResponse(ExportVerdict.REFUSED),
        ),
        ([ExportResponse(ExportVerdict.DENIED)], 1, ExportResponse(ExportVerdict.DENIED)),
        ([UNREACHABLE] * 9, 4, UNREACHABLE),
    ],
)
def test_a_message_is_retried(
    answers: list[ExportResponse], attempts: int, result: ExportResponse
) -> None:
    sent, pauses = list[ExportResponse](), list[float]()

    def send() -> ExportResponse:
        sent.append(answers[len(sent)])
        return sent[-1]

    outcome = deliver(
        send,
        Backoff(jitter=lambda: 1.0),
        clock=lambda: 0.0,
        pause=pauses.append,
        last_attempt=lambda: len(sent) == 4,
    )
    assert (len(sent), outcome) == (attempts, result)
    assert pauses == [1.0, 2.0, 4.0][: attempts - 1]
