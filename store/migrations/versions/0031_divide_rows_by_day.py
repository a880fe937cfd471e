"""Divide PostgreSQL's tables of rows into days, and compress ClickHouse's columns.

`store/dialects/postgresql_days.py` divides existing tables later, while collectors write, because
PostgreSQL must read them completely. ClickHouse runs no revisions, but runs its statements for all
tables again.
"""

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
