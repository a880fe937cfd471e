"""Keep how long engines loaded before they were ready, which a bill names.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    with op.batch_alter_table("engine_starts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("loading_s", sa.Double(), autoincrement=False, nullable=True))
