"""The command that predicts what a change would do to a layer of the budget. Pure."""

import shlex

from analysis.budget.answer import BudgetQuestion


def command(layer: str, question: BudgetQuestion, replicas: int) -> str | None:
    """Return the command that predicts the effect of a change, or None if no command can."""
    change = {
        "queue": ("--replicas", f"{max(1, replicas) + 1}"),
        "prefill": ("--sweep", "max_num_batched_tokens=1024..16384"),
        "decode": ("--sweep", "max_num_seqs=16..512"),
    }.get(layer)
    if change is None:
        return None
    ends = (question.window.from_unix_ns, question.window.to_unix_ns)
    first, last = (f"{ns / 1e9:.0f}" for ns in ends)
    where = [
        word
        for label, value in question.equals.items()
        for word in ("--where", f"{label}={value or ''}")
    ]
    words = ("what-if", "--from", first, "--to", last, *where, *change)
    return " ".join(["tailspan", *(shlex.quote(word) for word in words)])
