"""Create the tables of the state."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    op.create_table(
        "incident_answers",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fired_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("computed_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slo", "severity", "fired_unix_s", "phase"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_unix_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "predictions",
        sa.Column("asked_unix_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("from_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("to_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("predicted", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("asked_unix_ns", "change"),
    )
    op.create_table(
        "slo_counted",
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("from_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("definition"),
    )
    op.create_table(
        "slo_counts",
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("good", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bad", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("aborted", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("client_error", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("unknown", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("definition", "until_unix_s"),
    )
    op.create_table(
        "slo_evaluations",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slo"),
    )
    op.create_table(
        "slo_incidents",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fired_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("began_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("last_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("ended_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("peak_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("peak_burn", sa.Text(), nullable=False),
        sa.Column("budget_spent", sa.Text(), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("slo", "severity", "fired_unix_s"),
    )
    op.create_table(
        "slo_notifications",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fired_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("transition", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_unix_s", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("next_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("delivered_unix_s", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("claimed_term", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("slo", "severity", "fired_unix_s", "transition", "channel"),
    )
    op.create_table(
        "slo_simulated_counts",
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("good", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bad", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("aborted", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("client_error", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("unknown", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("definition", "until_unix_s"),
    )
    op.create_table(
        "state_identity",
        sa.Column("state_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("state_id"),
    )
