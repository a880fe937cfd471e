"""Store the id of the response that a router reports.

Operations of older databases have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("application_operations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("response_id", sa.Text(), autoincrement=False, nullable=True))
