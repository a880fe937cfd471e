"""Select the requests to servers that serve a model of the question's requests.

Pure. Requests of other tenants to these servers are included, because they may delay the question's
requests. Requests to servers of other models are excluded. The rates of such requests change
independently. Such a change would look like an uneven division of the requests by the router.
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, Requests
from diagnosis.question import Question


def same_model_requests(
    now: Requests, before: Requests, question: Question
) -> tuple[Requests, Requests]:
    """Return the requests of window and baseline, except requests to servers of other models.

    Here, a server is a replica, and not a single engine of it. If the question has no filter, all
    requests are returned.
    """
    if not question.where:
        return now, before
    selected = [each.matching(question.where) for each in (now, before)]
    replicas = _values("replica", (now, selected[0]), (before, selected[1]))
    there = [_rows_with_label(each, "replica", replicas) for each in (now, before)]
    models = _values("model", (now, there[0]), (before, there[1]))
    kept = [_rows_with_label(each, "model", models) for each in (now, before)]
    return now.rows(kept[0]), before.rows(kept[1])


def _values(label: str, *chosen: tuple[Requests, BoolArray]) -> set[str | None]:
    found: set[str | None] = set()
    for requests, rows in chosen:
        column = requests.label(label)
        codes = np.unique(column.codes[rows])
        found |= {column.values[code] if code >= 0 else None for code in codes}
    return found


def _rows_with_label(requests: Requests, label: str, values: set[str | None]) -> BoolArray:
    column = requests.label(label)
    wanted = [place for place, value in enumerate(column.values) if value in values]
    if None in values:
        wanted.append(-1)
    return np.isin(column.codes, wanted)
