"""Keep predictions."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "predictions",
        sa.Column("asked_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("from_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("to_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("predicted", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("asked_unix_ns", "change"),
    )
