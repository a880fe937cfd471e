"""Keep how long a request was on its way from the front end to the engine's books.

Unknown of the rows that are there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it so."""
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(sa.Column("handoff_s", sa.Double(), autoincrement=False, nullable=True))
