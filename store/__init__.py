"""The store: requests and engine samples in SQL, in as dataclasses, out as Arrow tables."""
