"""Rollups by minute and hour.

They are made of the requests that are there once `tailspan up` runs, not here: that takes a
while, and can be stopped (store/rollups/marks.py, `begin`).
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, empty."""
    op.create_table(
        "rollup_bins",
        sa.Column("latency", sa.Text(), nullable=False),
        sa.Column("grouping", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("label_sets", sa.LargeBinary(), nullable=False),
        sa.Column("sizes", sa.LargeBinary(), nullable=False),
        sa.Column("bins", sa.LargeBinary(), nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("latency", "grouping", "width_s", "from_unix_s", "simulated"),
    )
    op.create_table(
        "rollup_labels",
        sa.Column("label_set", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("lora", sa.Text(), nullable=True),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("tenant", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("replica", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("streamed", sa.Text(), nullable=True),
        sa.Column("newest_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("label_set"),
    )
    op.create_table(
        "rollup_marks",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("width_s", "from_unix_s", "token"),
    )
    op.create_table(
        "rollup_state",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("whole_from_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("width_s"),
    )
    op.create_table(
        "rollups",
        sa.Column("grouping", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("overflowed", sa.BigInteger(), nullable=False),
        sa.Column("label_sets", sa.LargeBinary(), nullable=False),
        sa.Column("set_requests", sa.LargeBinary(), nullable=False),
        sa.Column("ttft_s", sa.LargeBinary(), nullable=True),
        sa.Column("tpot_s", sa.LargeBinary(), nullable=True),
        sa.Column("itl_max_s", sa.LargeBinary(), nullable=True),
        sa.Column("e2e_s", sa.LargeBinary(), nullable=True),
        sa.Column("queue_s", sa.LargeBinary(), nullable=True),
        sa.Column("frontend_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_s", sa.LargeBinary(), nullable=True),
        sa.Column("delivery_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_own_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_others_prefill_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_others_decode_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_preempted_s", sa.LargeBinary(), nullable=True),
        sa.Column("prefill_stall_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_own_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_others_prefill_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_others_decode_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_preempted_s", sa.LargeBinary(), nullable=True),
        sa.Column("decode_stall_s", sa.LargeBinary(), nullable=True),
        sa.Column("prompt_tokens", sa.LargeBinary(), nullable=True),
        sa.Column("cached_tokens", sa.LargeBinary(), nullable=True),
        sa.Column("output_tokens", sa.LargeBinary(), nullable=True),
        sa.Column("preemptions", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("grouping", "width_s", "from_unix_s", "simulated"),
    )
