"""Roll up what a bill needs of samples.

They are made of the samples that are there once `tailspan up` runs, as of requests (0005).
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, empty."""
    op.create_table(
        "engine_stretches",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("things", sa.Text(), nullable=False),
        sa.Column("first_unix_ns", sa.LargeBinary(), nullable=False),
        sa.Column("last_unix_ns", sa.LargeBinary(), nullable=False),
        sa.Column("first_busy_s_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_busy_s_total", sa.LargeBinary(), nullable=True),
        sa.Column("first_steps_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_steps_total", sa.LargeBinary(), nullable=True),
        sa.Column("first_scheduled_prefill_tokens_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_scheduled_prefill_tokens_total", sa.LargeBinary(), nullable=True),
        sa.Column("first_prefill_attention_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_prefill_attention_total", sa.LargeBinary(), nullable=True),
        sa.Column("first_context_tokens_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_context_tokens_total", sa.LargeBinary(), nullable=True),
        sa.Column("first_decodes_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_decodes_total", sa.LargeBinary(), nullable=True),
        sa.Column("step_model_base_s", sa.LargeBinary(), nullable=True),
        sa.Column("step_model_per_prefill_token_s", sa.LargeBinary(), nullable=True),
        sa.Column("step_model_per_prefill_attention_s", sa.LargeBinary(), nullable=True),
        sa.Column("step_model_per_context_token_s", sa.LargeBinary(), nullable=True),
        sa.Column("step_model_per_decode_s", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("width_s", "from_unix_s", "simulated"),
    )
    op.create_table(
        "gpu_stretches",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("things", sa.Text(), nullable=False),
        sa.Column("first_unix_ns", sa.LargeBinary(), nullable=False),
        sa.Column("last_unix_ns", sa.LargeBinary(), nullable=False),
        sa.Column("first_energy_j_total", sa.LargeBinary(), nullable=True),
        sa.Column("last_energy_j_total", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("width_s", "from_unix_s", "simulated"),
    )
    op.create_table(
        "sample_marks",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("width_s", "from_unix_s", "token"),
    )
    op.create_table(
        "sample_state",
        sa.Column("width_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("whole_from_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("width_s"),
    )
