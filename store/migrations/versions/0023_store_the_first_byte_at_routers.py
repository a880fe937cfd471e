"""Store the time to the first byte that routers report."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("application_operations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ttft_s", sa.Double(), autoincrement=False, nullable=True))
