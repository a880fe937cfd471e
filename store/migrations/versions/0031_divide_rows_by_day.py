"""Divide PostgreSQL's tables of rows into days, and compress ClickHouse's columns.

`store/dialects/postgresql_days.py` divides existing tables later, while collectors write, because
PostgreSQL must read the tables completely. ClickHouse has no revisions. When the schema version
changes, Tailspan runs the statements of all tables in ClickHouse. These statements add what is
missing and set the compression.
"""

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
