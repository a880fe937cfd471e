"""Keep by how much instants were set back, because the clock they were read on was ahead.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("engine_starts", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("gpu_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("clock_ahead_s", sa.Double(), autoincrement=False, nullable=True)
        )
