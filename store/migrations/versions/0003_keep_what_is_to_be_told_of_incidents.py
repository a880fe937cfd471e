"""Keep what is to be told of incidents."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    op.create_table(
        "slo_notifications",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fired_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("transition", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("next_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("delivered_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("slo", "severity", "fired_unix_s", "transition", "channel"),
    )
