"""Store the number of steps with prefill, and the additional time to launch such a step."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(sa.Column("step_model_per_prefill_step_s", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("prefill_steps_total", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("engine_stretches", schema=None) as batch_op:
        for name in (
            "first_prefill_steps_total",
            "last_prefill_steps_total",
            "step_model_per_prefill_step_s",
        ):
            batch_op.add_column(sa.Column(name, sa.LargeBinary(), nullable=True))
