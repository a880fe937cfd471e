"""Keep what stood in the way of requests in the queue, and the processors' time.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("host_cpus", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("process_cpu_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("core_cpu_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("host_cpu_busy_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("host_cpu_steal_s_total", sa.Double(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("queue_seats_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("queue_kv_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("queue_budget_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("queue_held_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("queue_step_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "others_prefill_tokens_max", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
