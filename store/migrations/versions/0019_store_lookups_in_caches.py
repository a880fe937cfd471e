"""Create the table of cache lookups, and add columns for values that responses report.

These values are the cache's result, the server's times, and the number of reasoning tokens.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "cache_lookups",
        sa.Column("trace_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("span_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("result", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("cache", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("duration_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("parent_span_id", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("service", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("region", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("lookup_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("similarity", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("tenant", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("route", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("model", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("at_unix_ns", "trace_id", "span_id"),
        info={"kept_first": True},
    )
    with op.batch_alter_table("cache_lookups", schema=None) as batch_op:
        batch_op.create_index("cache_lookups_at_unix_ns", ["at_unix_ns"], unique=False)

    with op.batch_alter_table("probes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cache", sa.Text(), autoincrement=False, nullable=True))
        batch_op.add_column(
            sa.Column("cache_result", sa.Text(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("server_queue_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("server_prefill_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("server_decode_s", sa.Double(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("reasoning_tokens", sa.BigInteger(), autoincrement=False, nullable=True)
        )
