"""Divide PostgreSQL's tables of rows into days, and compress ClickHouse's columns.

The columns do not change. To divide the tables of an older version, PostgreSQL must read them
completely. Therefore, `store/dialects/postgresql_days.py` divides them later, while collectors
write, and this revision does not. ClickHouse runs no revisions. It runs its statements for all
tables again, because the number of the newest revision has changed.
"""

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
