"""Keep when engines started, and what outside caches gave."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    op.create_table(
        "engine_starts",
        sa.Column("replica", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("engine", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("process", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("config", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("arguments", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("region", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("version", sa.Text(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("replica", "engine", "process", "at_unix_ns"),
        info={"kept_first": True},
    )
    with op.batch_alter_table("engine_starts", schema=None) as batch_op:
        batch_op.create_index("engine_starts_at_unix_ns", ["at_unix_ns"], unique=False)

    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("fetching_kv", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "local_cached_prompt_tokens_total",
                sa.BigInteger(),
                autoincrement=False,
                nullable=True,
            )
        )
        batch_op.add_column(
            sa.Column(
                "external_cached_prompt_tokens_total",
                sa.BigInteger(),
                autoincrement=False,
                nullable=True,
            )
        )
        batch_op.add_column(
            sa.Column(
                "kv_transfer_bytes_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column("kv_transfer_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "kv_transfer_failures_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("external_cached_tokens", sa.BigInteger(), autoincrement=False, nullable=True)
        )
