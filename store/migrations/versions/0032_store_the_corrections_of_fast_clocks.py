"""Store the corrections of senders whose clock is ahead, and of their rows.

A row that an older version corrected may be stored twice if it is sent again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "clock_corrections",
        sa.Column("sent_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("span_id", sa.Text(), nullable=False),
        sa.Column("ahead_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sent_unix_ns", "trace_id", "span_id"),
    )
    op.create_table(
        "sender_clocks",
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("ahead_ns", sa.BigInteger(), nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica"),
    )
