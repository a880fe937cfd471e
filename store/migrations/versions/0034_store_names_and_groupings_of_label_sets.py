"""Store the label values that rollups store by name, and the grouping of each label set.

Rollups of older versions are read from the grouping with all labels.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "rollup_names",
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("hours", sa.BigInteger(), nullable=False),
        sa.Column("newest_hour", sa.BigInteger(), nullable=False),
        sa.Column("named_from_unix_s", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("label", "value"),
    )
    op.add_column(
        "rollup_labels",
        sa.Column("grouping", sa.BigInteger(), server_default="0", nullable=False),
    )
