"""Store why requests were held back, and the transfers of offloaded KV cache."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the schema."""
    with op.batch_alter_table("engine_samples", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "host_cache_hits_tokens_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column(
                "p2p_cache_hits_tokens_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column(
                "disk_cache_hits_tokens_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column(
                "kv_offload_load_bytes_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column("kv_offload_load_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "kv_offload_store_bytes_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column("kv_offload_store_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "kv_offload_store_failures_total",
                sa.BigInteger(),
                autoincrement=False,
                nullable=True,
            )
        )
        batch_op.add_column(
            sa.Column("kv_offload_lookup_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "kv_tier_read_bytes_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column("kv_tier_read_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column(
                "kv_tier_write_bytes_total", sa.BigInteger(), autoincrement=False, nullable=True
            )
        )
        batch_op.add_column(
            sa.Column("kv_tier_write_s_total", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("mm_cache_queries_total", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("mm_cache_hits_total", sa.BigInteger(), autoincrement=False, nullable=True)
        )

    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.add_column(sa.Column("kv_load_s", sa.Double(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("grammar_s", sa.Double(), autoincrement=False, nullable=True))
        batch_op.add_column(
            sa.Column("adapter_wait_s", sa.Double(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(sa.Column("encoder_s", sa.Double(), autoincrement=False, nullable=True))
        batch_op.add_column(
            sa.Column("kv_loaded_bytes", sa.BigInteger(), autoincrement=False, nullable=True)
        )
        batch_op.add_column(
            sa.Column("kv_loaded_tier", sa.Text(), autoincrement=False, nullable=True)
        )
