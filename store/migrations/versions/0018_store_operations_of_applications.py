"""Store operations of applications."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "application_operations",
        sa.Column("trace_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("span_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("operation", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("length_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("process", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("at_unix_ns", "trace_id", "span_id"),
        info={"kept_first": True},
    )
    with op.batch_alter_table("application_operations", schema=None) as batch_op:
        batch_op.create_index("application_operations_at_unix_ns", ["at_unix_ns"], unique=False)
