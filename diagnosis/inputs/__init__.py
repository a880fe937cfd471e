"""The input of a diagnosis: requests and server samples, as columns, and checks of this data."""
