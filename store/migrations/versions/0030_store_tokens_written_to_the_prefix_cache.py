"""Store the prompt tokens that a request wrote to the prefix cache."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("cache_write_tokens", sa.BigInteger(), autoincrement=False, nullable=True)
        )
