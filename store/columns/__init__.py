"""Read many rows as columns, through ADBC if it is installed, and cache the columns."""
