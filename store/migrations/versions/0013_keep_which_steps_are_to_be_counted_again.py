"""Keep which steps are to be counted again, and count simulated requests apart.

Where simulated requests are kept, the counts since the first of them were made of both kinds: they
are made again, apart, of the requests that are there. Where there are no others, the incidents are
the simulation's, too.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables and the column, and shorten what was counted of both kinds."""
    op.create_table(
        "slo_marks",
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("until_unix_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("received_unix_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token", "until_unix_s", "source"),
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
    with op.batch_alter_table("slo_incidents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("simulated", sa.Boolean(), nullable=True))

    first = "(SELECT MIN(received_unix_ns) FROM requests WHERE source = 'simulator')"
    step = f"({first} / 15000000000) * 15"
    op.execute(
        f"UPDATE slo_counted SET until_unix_s = {step}"
        f" WHERE {first} IS NOT NULL AND until_unix_s > {step}"
    )
    op.execute("UPDATE slo_counted SET from_unix_s = until_unix_s WHERE from_unix_s > until_unix_s")
    op.execute(
        f"UPDATE slo_incidents SET simulated = (1 = 1) WHERE {first} IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM requests WHERE source <> 'simulator')"
    )
