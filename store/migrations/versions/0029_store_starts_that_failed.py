"""Store engine starts that failed."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("cold_starts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reached", sa.Text(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("failure", sa.Text(), autoincrement=False, nullable=True))
