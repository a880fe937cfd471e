"""Store the parts of a start before the server's first process, and a router's response id."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("cold_starts", schema=None) as batch_op:
        for name in ("scheduling_s", "image_pull_s", "init_containers_s", "container_s"):
            batch_op.add_column(sa.Column(name, sa.Double(), autoincrement=False, nullable=True))
    with op.batch_alter_table("application_operations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("response_id", sa.Text(), autoincrement=False, nullable=True))
