"""The schema as it was at version 2, before there were revisions.

A database of that version has these tables, the `slo_` ones where an objective was ever
evaluated: it keeps them, and gives up `tailspan_schema` for the number of this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make what is missing."""
    op.create_table(
        "engine_samples",
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("engine", sa.BigInteger(), nullable=False),
        sa.Column("process", sa.BigInteger(), nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("config", sa.Text(), nullable=True),
        sa.Column("waiting", sa.BigInteger(), nullable=True),
        sa.Column("running", sa.BigInteger(), nullable=True),
        sa.Column("deferred", sa.BigInteger(), nullable=True),
        sa.Column("kv_usage_ratio", sa.Double(), nullable=True),
        sa.Column("waiting_loras", sa.BigInteger(), nullable=True),
        sa.Column("running_loras", sa.BigInteger(), nullable=True),
        sa.Column("longest_step_s", sa.Double(), nullable=True),
        sa.Column("step_model_base_s", sa.Double(), nullable=True),
        sa.Column("step_model_per_prefill_token_s", sa.Double(), nullable=True),
        sa.Column("step_model_per_prefill_attention_s", sa.Double(), nullable=True),
        sa.Column("step_model_per_context_token_s", sa.Double(), nullable=True),
        sa.Column("step_model_per_decode_s", sa.Double(), nullable=True),
        sa.Column("step_model_error_ratio", sa.Double(), nullable=True),
        sa.Column("step_model_r_squared", sa.Double(), nullable=True),
        sa.Column("steps_total", sa.BigInteger(), nullable=True),
        sa.Column("busy_s_total", sa.Double(), nullable=True),
        sa.Column("stall_s_total", sa.Double(), nullable=True),
        sa.Column("scheduled_prefill_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("prefill_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("decode_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("prefix_cache_queries_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("prefix_cache_hits_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column(
            "external_cache_queries_tokens_total",
            sa.BigInteger(),
            nullable=True,
        ),
        sa.Column("external_cache_hits_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("preemptions_total", sa.BigInteger(), nullable=True),
        sa.Column("drafts_total", sa.BigInteger(), nullable=True),
        sa.Column("draft_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("accepted_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("modelled_flops_total", sa.Double(), nullable=True),
        sa.Column("modelled_read_bytes_total", sa.Double(), nullable=True),
        sa.Column("modelled_write_bytes_total", sa.Double(), nullable=True),
        sa.Column("spans_dropped_total", sa.BigInteger(), nullable=True),
        sa.Column("hook_failures_total", sa.BigInteger(), nullable=True),
        sa.Column("accounts_dropped_total", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("replica", "engine", "process", "at_unix_ns"),
        if_not_exists=True,
    )
    op.create_index(
        "engine_samples_at_unix_ns", "engine_samples", ["at_unix_ns"], if_not_exists=True
    )

    op.create_table(
        "requests",
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("span_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("received_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("e2e_s", sa.Double(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("frontend_s", sa.Double(), nullable=True),
        sa.Column("queue_s", sa.Double(), nullable=True),
        sa.Column("prefill_s", sa.Double(), nullable=True),
        sa.Column("decode_s", sa.Double(), nullable=True),
        sa.Column("delivery_s", sa.Double(), nullable=True),
        sa.Column("prefill_own_s", sa.Double(), nullable=True),
        sa.Column("prefill_others_prefill_s", sa.Double(), nullable=True),
        sa.Column("prefill_others_decode_s", sa.Double(), nullable=True),
        sa.Column("prefill_preempted_s", sa.Double(), nullable=True),
        sa.Column("prefill_stall_s", sa.Double(), nullable=True),
        sa.Column("decode_own_s", sa.Double(), nullable=True),
        sa.Column("decode_others_prefill_s", sa.Double(), nullable=True),
        sa.Column("decode_others_decode_s", sa.Double(), nullable=True),
        sa.Column("decode_preempted_s", sa.Double(), nullable=True),
        sa.Column("decode_stall_s", sa.Double(), nullable=True),
        sa.Column("ttft_s", sa.Double(), nullable=True),
        sa.Column("itl_max_s", sa.Double(), nullable=True),
        sa.Column("operation", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("lora", sa.Text(), nullable=True),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("tenant", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("replica", sa.Text(), nullable=True),
        sa.Column("engine", sa.BigInteger(), nullable=True),
        sa.Column("config", sa.Text(), nullable=True),
        sa.Column("streamed", sa.Boolean(), nullable=True),
        sa.Column("http_status", sa.BigInteger(), nullable=True),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("preemptions", sa.BigInteger(), nullable=True),
        sa.Column("waiting_at_arrival", sa.BigInteger(), nullable=True),
        sa.Column("running_at_arrival", sa.BigInteger(), nullable=True),
        sa.Column("kv_usage_at_arrival", sa.Double(), nullable=True),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("trace_id", "span_id"),
        if_not_exists=True,
    )
    op.create_index(
        "requests_received_unix_ns", "requests", ["received_unix_ns"], if_not_exists=True
    )

    op.create_table(
        "slo_counted",
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("definition"),
        if_not_exists=True,
    )
    op.create_table(
        "slo_counts",
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("good", sa.BigInteger(), nullable=False),
        sa.Column("bad", sa.BigInteger(), nullable=False),
        sa.Column("aborted", sa.BigInteger(), nullable=False),
        sa.Column("client_error", sa.BigInteger(), nullable=False),
        sa.Column("unknown", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("definition", "until_unix_s"),
        if_not_exists=True,
    )
    op.create_table(
        "slo_evaluations",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slo"),
        if_not_exists=True,
    )
    op.create_table(
        "slo_incidents",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fired_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("began_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("last_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("ended_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("peak_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("peak_burn", sa.Text(), nullable=False),
        sa.Column("budget_spent", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("slo", "severity", "fired_unix_s"),
        if_not_exists=True,
    )
    op.drop_table("tailspan_schema", if_exists=True)
