"""Store the time to first content, and the numbers of tool-call tokens and of content tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("first_content_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("tool_call_tokens", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("content_tokens", sa.BigInteger(), autoincrement=False, nullable=True)
        )
