"""Store counts per objective, incidents, and notifications."""
