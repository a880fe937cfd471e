"""Store the parts of engine starts."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "cold_starts",
        sa.Column("trace_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("span_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("replica", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("engine", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("length_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("imports_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("config_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("engine_process_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("workers_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("device_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("weights_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("compile_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("warm_up_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("kv_cache_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("unsplit_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("server_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("model", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("config", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("version", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("region", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("simulated", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("at_unix_ns", "trace_id", "span_id"),
        info={"kept_first": True},
    )
    with op.batch_alter_table("cold_starts", schema=None) as batch_op:
        batch_op.create_index("cold_starts_at_unix_ns", ["at_unix_ns"], unique=False)
