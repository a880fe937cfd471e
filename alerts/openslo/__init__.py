"""OpenSLO documents, read as objectives."""
