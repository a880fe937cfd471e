"""Store probes."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "probes",
        sa.Column("trace_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("span_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("endpoint", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("outcome", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("region", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("model", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("request_id", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("error_type", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("error", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("http_status", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("twin", sa.Boolean(), autoincrement=False, nullable=True),
        sa.Column("late_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("dns_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("connect_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("tls_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("written_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("first_byte_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("first_event_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("first_reasoning_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("first_content_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("itl_max_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("e2e_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("chunks", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("reasoning_tokens", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("cost_usd", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("certificate_ends_unix_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("at_unix_ns", "trace_id", "span_id"),
        info={"kept_first": True},
    )
    with op.batch_alter_table("probes", schema=None) as batch_op:
        batch_op.create_index("probes_at_unix_ns", ["at_unix_ns"], unique=False)
