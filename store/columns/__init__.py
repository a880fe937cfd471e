"""Reads many rows as columns, through ADBC where there is one, and keeps them between questions."""
