"""Store requests and samples in an SQL database."""
