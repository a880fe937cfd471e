"""Divide PostgreSQL's tables of rows into days, and compress ClickHouse's columns.

The columns do not change. In PostgreSQL, `store/dialects/postgresql_days.py` divides the tables of
an older version while collectors write, because that reads whole tables. ClickHouse runs no
revision; its statements run again because the number of the newest revision changed.
"""

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
