"""Keep what requests are billed, what engines run on, and the work of their steps.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("prefill_attention_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("context_tokens_total", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("decodes_total", sa.BigInteger(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("engine_starts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("device", sa.Text(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("gpus", sa.BigInteger(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("shape", sa.Text(), autoincrement=False, nullable=True))

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(sa.Column("billed_s", sa.Double(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("wasted_s", sa.Double(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("priced_by", sa.Text(), autoincrement=False, nullable=True))

    with op.batch_alter_table("rollups", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "billed_s",
                sa.LargeBinary(),
                nullable=True,
            )
        )
        batch_op.add_column(
            sa.Column(
                "wasted_s",
                sa.LargeBinary(),
                nullable=True,
            )
        )
        batch_op.add_column(
            sa.Column(
                "cost_usd",
                sa.LargeBinary(),
                nullable=True,
            )
        )
