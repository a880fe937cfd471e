"""Give the tables of the state their own revisions, and store which database holds the state.

The tables do not change. Changes of the state's tables are in `state_versions/`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "state_link",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state_id", sa.Text(), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "state_identity",
        sa.Column("state_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("state_id"),
    )
    revisions = op.create_table(
        "tailspan_state_revision",
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num"),
    )
    assert revisions is not None
    op.bulk_insert(revisions, [{"version_num": "0001"}])
