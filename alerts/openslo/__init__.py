"""Read OpenSLO documents as objectives."""
