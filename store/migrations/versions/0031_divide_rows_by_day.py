"""Divide PostgreSQL's tables of rows into days, and compress ClickHouse's columns.

The columns do not change. Dividing the tables of an older version reads whole tables. So in
PostgreSQL, `store/dialects/postgresql_days.py` divides them while collectors write, and this
revision does not. ClickHouse runs no revision; its statements run again because the number of the
newest revision changed.
"""

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
