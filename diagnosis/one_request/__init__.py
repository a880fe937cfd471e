"""The account of a single request: where its time went, and which requests delayed it."""
