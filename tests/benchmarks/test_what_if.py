from benchmarks.what_if import Figure, WhatIfResult, drawn, table


def test_the_table_shows_coverage_beside_the_width() -> None:
    case = drawn(1)
    inside = Figure("ttft_s", "p99", 0.2, 0.1, 0.05, 0.15, same=0.1, new=0.14)
    above = Figure("ttft_s", "p99", 0.2, 0.1, 0.08, 0.12, same=0.11, new=0.2)
    results = [
        WhatIfResult(case, figures=[inside]),
        WhatIfResult(case, figures=[above]),
        WhatIfResult(case, refused=True),
        WhatIfResult(case, saturated=True, missed=True),
    ]
    lines = table(results)
    assert lines[0] == "4 cases, 1 refused, 1 saturated, 1 not reported as saturated"
    assert lines[-1] == (
        "new traffic, p99: inside 50% of 2 (goal: 90 to 98 %), below 0% of 2, above 50% of 2;"
        " median width 70.0%"
    )
    width = next(line for line in lines if line.startswith("median width"))
    assert width.split()[-7] == "70.0%"


def test_a_case_with_adapters_has_too_few_slots() -> None:
    case = drawn(1, adapters=True)
    assert 0 < case.engine.max_loras < len(case.adapters)
    assert not drawn(1).engine.max_loras
