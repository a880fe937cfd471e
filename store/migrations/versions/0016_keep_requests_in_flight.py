"""Keep the newest report of each request in flight, and of requests when they were last reported.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column."""
    op.create_table(
        "requests_in_flight",
        sa.Column("span_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("trace_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("received_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seen_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("ttft_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("reported_in_flight_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("operation", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("model", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("lora", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("route", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("tenant", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("region", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("replica", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("config", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("streamed", sa.Boolean(), autoincrement=False, nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("span_id", "trace_id"),
    )
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("reported_in_flight_s", sa.Double(), autoincrement=False, nullable=True)
        )
