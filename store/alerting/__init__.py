"""What alerting stores: counts per objective, incidents, and notifications to send."""
