import pytest

from replay.trace_csv import TraceError, parse_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_rows_are_in_order_of_time_since_the_first() -> None:
    lines = [
        "output_tokens,Timestamp,input_tokens",
        "44,2023-11-16 18:15:50.9951690,374",
        "",
        "109,2023-11-16 18:15:46.4951690,396",
        "5,2023-11-16T18:15:47Z,6",
    ]
    rows = parse_trace(lines, "t.csv")
    reported = [(row.prompt_tokens, row.output_tokens) for row in rows]
    assert reported == [(396, 109), (6, 5), (374, 44)]
    assert [row.at_s for row in rows] == pytest.approx([0.0, 0.504831, 4.5])


def test_instants_may_be_numbers() -> None:
    rows = parse_trace([HEADER, "1700000000.5,1,2", "1700000002,3,4"], "t.csv")
    assert [row.at_s for row in rows] == [0.0, 1.5]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "line 1: no column for at; it may be called timestamp, .*there are: none"),
        (["when,what"], "line 1: no column for at.*there are: when, what"),
        ([HEADER], "contains no requests"),
        ([HEADER, "0,1,2", "1,2"], "line 3: 2 columns; expected 3"),
        ([HEADER, "0,1,-2"], "line 2: generatedtokens = -2; allowed: 0 or more"),
        ([HEADER, "0,1.5,2"], "line 2: contexttokens = '1.5'; allowed: a whole number"),
        ([HEADER, "noon,1,2"], "line 2: 'noon' is not a time; allowed: seconds, or a date"),
        ([HEADER, "inf,1,2"], "line 2: 'inf' is not a time; allowed: a finite"),
    ],
)
def test_an_error_contains_the_line_number(lines: list[str], expected: str) -> None:
    with pytest.raises(TraceError, match=rf"^t\.csv.*{expected}"):
        parse_trace(lines, "t.csv")
