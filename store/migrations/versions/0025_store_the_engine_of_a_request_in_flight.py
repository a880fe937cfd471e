"""Store the engine of a request in flight."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("requests_in_flight", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("engine", sa.BigInteger(), autoincrement=False, nullable=True)
        )
