"""Keep how many requests have not ended, the age of the oldest, and how long no step was seen.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("in_flight", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("oldest_request_age_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("last_step_age_s", sa.Double(), autoincrement=False, nullable=True)
        )
